// A program with one test. It mounts a private file system of 4 MiB. If the kernel does not permit
// this, it exits with code 77 (skipped).
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "lmdbio/file/writer/database_writer.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;

// A file system of 4 MiB, private to this process.
class SmallDisk {
 public:
  SmallDisk() {
    const bool is_mounted =
        (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("tmpfs", path().c_str(), "tmpfs", 0, "size=4m") == 0;
    if (is_mounted) return;
    std::fprintf(stderr, "skipped: cannot mount a small disk: %s\n", std::strerror(errno));
    fs::remove(path());  // exit runs no destructor of this object
    std::exit(77);
  }
  ~SmallDisk() { ::umount(path().c_str()); }

  const fs::path& path() const { return directory_.path(); }

 private:
  test::TempDir directory_;
};

Result<WriteSummary> WriteTooMuch(const WriterOptions& options) {
  LMDBIO_TRY(DatabaseWriter writer, DatabaseWriter::Create(options));
  const std::string value(options.commit_interval_records == 1 ? 3000 : 300000, 'v');
  for (int i = 0; i < 5000; ++i) {
    LMDBIO_TRY_VOID(writer.Put(AsBytes(std::to_string(i)), AsBytes(value)));
  }
  return writer.Finish();
}

// Goal: the error code distinguishes a full disk from a broken one, also when liblmdb reports its
// short write as EIO; and all files are removed.
TEST_CASE("DatabaseWriter reports a full disk and removes its files", "[writer][fault]") {
  const SmallDisk disk;
  WriterOptions options;
  options.path = (disk.path() / "db").string();
  options.commit_interval_records = GENERATE(as<uint64_t>{}, 0, 1, 3, 10);
  options.shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  options.provenance = ProvenanceMode::kSkip;

  const Result<WriteSummary> summary = WriteTooMuch(options);

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kResourceExhausted);
  CHECK(summary.error().message() == options.path + ": cannot be written: No space left on device");
  CHECK(fs::is_empty(disk.path()));
}

}  // namespace
}  // namespace lmdbio::file
