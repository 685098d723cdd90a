#include "lmdbio/file/output/file_owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

using std::chrono::seconds;

// Only one host writes to these: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs, ramfs and
// overlays (linux/magic.h, statfs(2)).
constexpr std::array<uint32_t, 9> kOneHost = {0xEF53,     0x58465342, 0x9123683E,
                                              0xF2F52010, 0x2FC12FC1, 0xCA451A4E,
                                              0x01021994, 0x858458F6, 0x794C7630};
constexpr seconds kRemoteWait{3600};

constexpr std::string_view kBeforeNumber = ".lmdbio-";
constexpr std::string_view kAfterNumber = ".tmp";

bool MayBeRemote(const UniqueFd& file, const struct stat& found) {
  struct statfs system = {};
  if (::fstatfs(file.get(), &system) != 0) return true;
  return MayHaveRemoteOwner(system.f_type, seconds(std::time(nullptr) - found.st_mtim.tv_sec));
}

}  // namespace

bool LockAsOwner(const UniqueFd& file) {
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool MayHaveRemoteOwner(int64_t file_system, seconds since_change) {
  return std::ranges::find(kOneHost, static_cast<uint32_t>(file_system)) == kOneHost.end() &&
         since_change < kRemoteWait;
}

FileState RemoveAbandoned(int folder, const std::string& name) {
  // Opened for writing, because NFS gives this lock to nobody else. O_NONBLOCK: it may be a FIFO.
  const UniqueFd file(
      ::openat(folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return errno == ENOENT ? FileState::kGone : FileState::kUnknown;
  struct stat found = {}, named = {};
  if (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != ::geteuid()) {
    return FileState::kUnknown;
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? FileState::kOwned : FileState::kUnknown;
  }
  if (MayBeRemote(file, found)) return FileState::kUnknown;
  // Before this process got the lock, the owner may have renamed the file, and another one may have
  // made a file of this name.
  if (::fstatat(folder, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) return FileState::kGone;
  if (named.st_dev != found.st_dev || named.st_ino != found.st_ino) return FileState::kOwned;
  return ::unlinkat(folder, name.c_str(), 0) == 0 ? FileState::kGone : FileState::kUnknown;
}

std::string WorkingName(std::string_view name, uint32_t number) {
  return fmt::format("{}{}{:x}{}", name, kBeforeNumber, number, kAfterNumber);
}

bool IsWorkingName(std::string_view name) {
  if (!name.ends_with(kAfterNumber)) return false;
  name.remove_suffix(kAfterNumber.size());
  const size_t mark = name.rfind(kBeforeNumber);
  if (mark == std::string_view::npos) return false;
  const std::string_view number = name.substr(mark + kBeforeNumber.size());
  return !number.empty() && number.size() <= 8 &&
         number.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace lmdbio::file
