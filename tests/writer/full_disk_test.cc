// A program of its own: it mounts a file system of 4 MiB that only it can see, which needs a kernel
// that lets it, and is skipped (exit code 77) where it may not.
#include <sched.h>
#include <sys/mount.h>

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "lmdbio/writer/database_writer.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::writer {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;

constexpr int kSkipped = 77;
fs::path g_small_disk;  // set by main before the tests run

// Returns: whether `directory` is now a file system of 4 MiB in a mount namespace of our own
bool MountSmallDisk(const fs::path& directory) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=4m") == 0;
}

Result<WriteSummary> WriteTooMuch(const WriterOptions& options) {
  LMDBIO_TRY(DatabaseWriter writer, DatabaseWriter::Create(options));
  const std::string value(options.commit_interval_records == 1 ? 3000 : 300000, 'v');
  for (int i = 0; i < 5000; ++i) {
    LMDBIO_TRY_VOID(writer.Put(AsBytes(std::to_string(i)), AsBytes(value)));
  }
  return writer.Finish();
}

// Goal: the code tells a full disk from a broken one, also when liblmdb reports its own short write
// as EIO; and the disk is as empty afterwards as before.
TEST_CASE("DatabaseWriter says that the disk is full and leaves nothing", "[writer][fault]") {
  WriterOptions options;
  options.path = (g_small_disk / "db").string();
  options.commit_interval_records = GENERATE(as<uint64_t>{}, 0, 1, 3, 10);
  options.shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  options.provenance = ProvenanceFile::kSkip;

  const Result<WriteSummary> summary = WriteTooMuch(options);

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kResourceExhausted);
  CHECK(summary.error().message() == options.path + ": cannot be written: No space left on device");
  CHECK(fs::is_empty(g_small_disk));
}

}  // namespace
}  // namespace lmdbio::writer

int main(int argc, char** argv) {
  const lmdbio::test::TempDir directory;
  if (!lmdbio::writer::MountSmallDisk(directory.path())) {
    std::fprintf(stderr, "skipped: cannot mount a small file system: %s\n", std::strerror(errno));
    return lmdbio::writer::kSkipped;
  }
  lmdbio::writer::g_small_disk = directory.path();
  const int failed_count = Catch::Session().run(argc, argv);
  umount(directory.path().c_str());
  return failed_count == 0 ? 0 : 1;
}
