// Goal: the probe returns plausible costs for any file, and reports errors of the file.
#include "lmdbio/file/blocks/storage_cost.h"

#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

std::string FileOf(const test::TempDir& dir, uint64_t size_bytes) {
  const auto path = dir.path() / "file";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, size_bytes);
  return path.string();
}

TEST_CASE("MeasureStorageCost returns plausible times of a request and a byte", "[io][cost]") {
  const test::TempDir dir;
  for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring, EngineKind::kMmap}) {
    for (const uint64_t file_bytes : {uint64_t{4096}, uint64_t{100'000}, uint64_t{8} << 20}) {
      EngineOptions options;
      options.kind = kind;
      const auto cost = MeasureStorageCost(FileOf(dir, file_bytes), options, file_bytes, 1 << 20);
      CAPTURE(EngineKindName(kind), file_bytes);
      REQUIRE(cost);
      CHECK(cost->request_s > 0);
      CHECK(cost->byte_s > 0);
      // No storage takes a second for a page or for a thousandth of one.
      CHECK(cost->request_s < 1);
      CHECK(cost->byte_s < 1);
    }
  }
}

TEST_CASE("MeasureStorageCost returns the notes of its engine", "[io][cost]") {
  const test::TempDir dir;
  const std::string path = FileOf(dir, 1 << 20);
  const test::Verdict verdict = test::InChild([&] {
    if (!test::RefuseSystemCall({SYS_io_uring_setup, EPERM})) return test::Verdict::kCannotTell;
    std::vector<std::string> notes;
    const auto cost = MeasureStorageCost(path, {}, 1 << 20, 1 << 16, &notes);
    const std::vector<std::string> wanted{
        path + ": io_uring is refused (Operation not permitted): reading with pread"};
    return cost && notes == wanted ? test::Verdict::kRight : test::Verdict::kWrong;
  });
  if (verdict == test::Verdict::kCannotTell) WARN("skipped: no seccomp filter can be set here");
  CHECK(verdict != test::Verdict::kWrong);
}

TEST_CASE("MeasureStorageCost assumes the cost of a small file", "[io][cost]") {
  const test::TempDir dir;
  const auto cost = MeasureStorageCost(FileOf(dir, 100), {}, 100, 1 << 20);
  REQUIRE(cost);
  CHECK(cost->request_s == kAssumedCost.request_s);
}

TEST_CASE("MeasureReadSeconds returns a plausible time, and reports errors", "[io][cost]") {
  const test::TempDir dir;
  for (const uint64_t file_bytes : {uint64_t{4096}, uint64_t{1} << 20}) {
    const auto read_s = MeasureReadSeconds(FileOf(dir, file_bytes), {}, file_bytes);
    REQUIRE(read_s);
    CHECK(*read_s > 0);
    CHECK(*read_s < 1);
  }
  CHECK(MeasureReadSeconds(FileOf(dir, 100), {}, 100) == 0);
  CHECK_FALSE(MeasureReadSeconds((dir.path() / "none").string(), {}, 1 << 20));
  CHECK_FALSE(MeasureReadSeconds(FileOf(dir, 8192), {}, 64 << 20));
}

TEST_CASE("MeasureStorageCost fails if the file cannot be read", "[io][cost]") {
  const test::TempDir dir;
  CHECK_FALSE(MeasureStorageCost((dir.path() / "none").string(), {}, 1 << 20, 1 << 20));
  // The file is shorter than the given size.
  CHECK_FALSE(MeasureStorageCost(FileOf(dir, 8192), {}, 64 << 20, 1 << 20));
}

}  // namespace
}  // namespace lmdbio::file
