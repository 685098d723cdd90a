// Goal: only unfinished files of this user whose owner has ended are removed.
#include "lmdbio/file/output/file_owner.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "tests/file/output/write_output.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::kNobody;
using test::TempDir;
using test::Verdict;

UniqueFd OpenFile(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

TEST_CASE("RemoveAbandoned removes a file without an owner", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("half"));
  {
    const UniqueFd owner = OpenFile(path);
    REQUIRE(LockAsOwner(owner));
    CHECK_FALSE(LockAsOwner(OpenFile(path)));
    CHECK(RemoveAbandoned(AT_FDCWD, path) == FileState::kOwned);
    CHECK(fs::exists(path));
  }
  CHECK(RemoveAbandoned(AT_FDCWD, path) == FileState::kGone);
  CHECK_FALSE(fs::exists(path));
  CHECK(RemoveAbandoned(AT_FDCWD, path) == FileState::kGone);
}

TEST_CASE("RemoveAbandoned leaves what is no regular file", "[output]") {
  const TempDir dir;
  const fs::path target = dir.path() / "target", path = dir.path() / "file";
  test::WriteWholeFile(target, AsBytes("precious"));
  SECTION("a link") { fs::create_symlink("target", path); }
  SECTION("a FIFO") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("a folder") { fs::create_directory(path); }
  CHECK(RemoveAbandoned(AT_FDCWD, path) == FileState::kUnknown);
  CHECK(fs::symlink_status(path).type() != fs::file_type::not_found);
  CHECK(fs::exists(target));
}

TEST_CASE("RemoveAbandoned leaves files of other users", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("theirs"));
  if (::chown(path.c_str(), kNobody, kNobody) != 0) {
    WARN("skipped: cannot give a file away");
    return;
  }
  CHECK(RemoveAbandoned(AT_FDCWD, path) == FileState::kUnknown);
  CHECK(fs::exists(path));
}

TEST_CASE("Without locks a file can be owned, and nobody removes it", "[output][fault]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("half"));
  const Verdict verdict = test::InChild([&] {
    if (!test::RefuseSystemCall({.number = SYS_flock, .error_number = ENOLCK})) {
      return Verdict::kCannotTell;
    }
    const bool is_right =
        LockAsOwner(OpenFile(path)) && RemoveAbandoned(AT_FDCWD, path) == FileState::kUnknown;
    return is_right ? Verdict::kRight : Verdict::kWrong;
  });
  CHECK(verdict != Verdict::kWrong);
  CHECK(fs::exists(path));
}

TEST_CASE("MayHaveRemoteOwner waits an hour where several hosts write", "[output]") {
  using std::chrono::seconds;
  for (const int64_t one_host : {int64_t{EXT4_SUPER_MAGIC}, int64_t{TMPFS_MAGIC},
                                 int64_t{BTRFS_SUPER_MAGIC}, int64_t{OVERLAYFS_SUPER_MAGIC}}) {
    CHECK_FALSE(MayHaveRemoteOwner(one_host, seconds(0)));
  }
  // The kernel gives f_type with a sign on some systems.
  CHECK_FALSE(MayHaveRemoteOwner(static_cast<int32_t>(0x9123683E), seconds(0)));
  CHECK(MayHaveRemoteOwner(NFS_SUPER_MAGIC, seconds(3599)));
  CHECK(MayHaveRemoteOwner(NFS_SUPER_MAGIC, seconds(-100)));  // the clocks differ
  CHECK_FALSE(MayHaveRemoteOwner(NFS_SUPER_MAGIC, seconds(3600)));
}

TEST_CASE("IsWorkingName knows the names of WorkingName only", "[output]") {
  CHECK(WorkingName("report.json", 0) == "report.json.lmdbio-0.tmp");
  CHECK(WorkingName("x", 0xFFFFFFFF) == "x.lmdbio-ffffffff.tmp");
  for (const uint32_t number : {0U, 7U, 0xFFFFFFFFU})
    CHECK(IsWorkingName(WorkingName("a", number)));
  for (const char* name : {"", ".tmp", "a.tmp", "a.lmdbio-.tmp", "a.lmdbio-g.tmp", "a.lmdbio-0",
                           "a.lmdbio-123456789.tmp", "a.deadbeef.tmp"}) {
    CHECK_FALSE(IsWorkingName(name));
  }
}

}  // namespace
}  // namespace lmdbio::file
