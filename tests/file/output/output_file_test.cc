// Goal: an OutputFile contains the bytes of all writes in order. A file that is not published
// leaves nothing. tests/file/source/small_file_test.cc tests every kind of path.
#include "lmdbio/file/output/output_file.h"

#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;

auto FileCount(const fs::path& directory) {
  return std::distance(fs::directory_iterator(directory), {});
}

TEST_CASE("OutputFile contains the written bytes in order", "[io][output-file]") {
  const test::TempDir dir;
  const fs::path path = dir.path() / "file";
  test::Random random(3);
  std::string expected;
  const auto file = OutputFile::Create(path);
  REQUIRE(file);
  // Sizes around that of the buffer, and much smaller and larger ones.
  for (const size_t size_bytes : {1, 0, 65'535, 1, 65'536, 65'537, 7, 300'000, 9}) {
    const std::string part = random.BytesOf(size_bytes);
    REQUIRE((*file)->Write(AsBytes(part)));
    expected += part;
  }
  CHECK_FALSE(fs::exists(path));
  REQUIRE((*file)->Publish());
  CHECK(test::ReadWholeTextFile(path) == expected);
  CHECK(FileCount(dir.path()) == 1);
}

TEST_CASE("An OutputFile that is not published leaves the old file", "[io][output-file]") {
  const test::TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("old"));
  {
    const auto file = OutputFile::Create(path);
    REQUIRE(file);
    REQUIRE((*file)->Write(AsBytes(std::string(100'000, 'x'))));
  }
  CHECK(test::ReadWholeTextFile(path) == "old");
  CHECK(FileCount(dir.path()) == 1);
}

// Goal: a limit of the process (ulimit -f) is an error. Its signal, SIGXFSZ, would end the process.
TEST_CASE("An OutputFile above the limit of file sizes is an error", "[io][output-file][fault]") {
  using test::Verdict;
  const test::TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("old"));
  const size_t part_bytes = GENERATE(1000, 100'000);
  const Verdict verdict = test::InChild([&] {
    const rlimit limit{70'000, 70'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return Verdict::kCannotTell;
    const auto file = OutputFile::Create(path);
    Status written;
    for (int i = 0; i < 100 && written; ++i) {
      written = (*file)->Write(AsBytes(std::string(part_bytes, 'x')));
    }
    if (written) written = (*file)->Publish();
    return !written && written.error().error_number() == EFBIG ? Verdict::kRight : Verdict::kWrong;
  });
  CHECK(verdict == Verdict::kRight);
  CHECK(test::ReadWholeTextFile(path) == "old");
  CHECK(FileCount(dir.path()) == 1);
}

}  // namespace
}  // namespace lmdbio::file
