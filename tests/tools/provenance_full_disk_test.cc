// A separate program. It mounts a file system of 1 MiB that only it can see. It is skipped (exit
// code 77) if the kernel does not permit that.
#define CATCH_CONFIG_RUNNER
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

constexpr int kSkipped = 77;
fs::path g_small_disk;  // set by main before the tests run

// Returns: whether `directory` is now a file system of 1 MiB in a separate mount namespace
bool MountSmallDisk(const fs::path& directory) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=1m") == 0;
}

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
  TinyDb db(g_small_disk);
  Random random(7);
  // Values of many sizes in random order, so that the provenance takes several pages.
  for (int i = 0; i < 4000; ++i) db.Put(random.BytesOf(8), random.BytesOf(random.Below(90)));
  db.Commit();
  FillDisk(g_small_disk / "filler");
  const std::set<fs::path> before = FilesOf(g_small_disk);

  const Program create = ProvenanceProgram("create");
  const CommandResult result = Run(create, g_small_disk);

  CHECK(FlawOfFailure(
            result, create,
            db.data_file().string() + ".prov: cannot be written: No space left on device") == "");
  CHECK(FilesOf(g_small_disk) == before);
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  const lmdbio::test::TempDir directory;
  if (!lmdbio::test::MountSmallDisk(directory.path())) {
    std::fprintf(stderr, "skipped: cannot mount a small file system: %s\n", std::strerror(errno));
    return lmdbio::test::kSkipped;
  }
  lmdbio::test::g_small_disk = directory.path();
  const int failed_count = Catch::Session().run(argc, argv);
  umount(directory.path().c_str());
  return failed_count == 0 ? 0 : 1;
}
