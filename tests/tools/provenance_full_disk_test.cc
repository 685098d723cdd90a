// A program of its own, because SmallDisk may end it (exit code 77).
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/small_disk.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

void FillDisk(const fs::path& file) {
  std::ofstream out(file, std::ios::binary);
  const std::string block(4096, 'x');
  while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

std::set<fs::path> FilesOf(const fs::path& directory) {
  const fs::directory_iterator files(directory);
  return {begin(files), end(files)};
}

TEST_CASE("lmdbio-provenance reports a full disk and leaves no file", "[tools][fault]") {
  const SmallDisk disk(1 << 20);
  TinyDb db(disk.path());
  Random random(7);
  // Values of many sizes in random order, so that the provenance takes several pages.
  for (int i = 0; i < 4000; ++i) db.Put(random.BytesOf(8), random.BytesOf(random.Below(90)));
  db.Commit();
  FillDisk(disk.path() / "filler");
  const std::set<fs::path> before = FilesOf(disk.path());

  const Program create = ProvenanceProgram("create");
  const CommandResult result = Run(create, disk.path());

  CHECK(FlawOfFailure(
            result, create,
            db.data_file().string() + ".prov: cannot be written: No space left on device") == "");
  CHECK(FilesOf(disk.path()) == before);
}

}  // namespace
}  // namespace lmdbio::test
