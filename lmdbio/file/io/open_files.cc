#include "lmdbio/file/io/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

constexpr uint64_t kShareOfLimit = 4;
constexpr uint64_t kOpenMaxOfDefault = 1024;
constexpr uint64_t kOpenMaxLeast = 2;

int FlagsOf(OpenAs as) { return O_RDONLY | O_CLOEXEC | (as == OpenAs::kDirect ? O_DIRECT : 0); }

}  // namespace

OpenFiles::OpenFiles(std::vector<std::string> paths, size_t open_max)
    : paths_(std::move(paths)), open_max_(open_max), numbers_(paths_.size()) {}

// Closes the descriptor that has been idle for longest. False if all are in use.
bool OpenFiles::CloseOne() {
  if (idle_.empty()) return false;
  open_.erase(idle_.front());
  idle_.pop_front();
  return true;
}

Status OpenFiles::CheckSame(size_t file, int fd) {
  struct stat found = {};
  if (::fstat(fd, &found) != 0) return Fail(ErrnoError(errno, paths_[file], "cannot be examined"));
  const FileNumber identity{found.st_dev, found.st_ino};
  std::optional<FileNumber>& known = numbers_[file];
  if (!known) known = identity;
  if (*known == identity) return {};
  return Fail(
      ErrorCode::kStale,
      fmt::format("{}: the file was changed while it was read: another file has replaced it",
                  paths_[file]));
}

Result<UniqueFd> OpenFiles::Open(size_t file, OpenAs as) {
  UniqueFd fd(::open(paths_[file].c_str(), FlagsOf(as)));
  // Other parts of the program may have taken the descriptors.
  while (!fd && (errno == EMFILE || errno == ENFILE) && CloseOne()) {
    fd = UniqueFd(::open(paths_[file].c_str(), FlagsOf(as)));
  }
  if (!fd) return Fail(ErrnoError(errno, paths_[file], "cannot be opened"));
  LMDBIO_TRY_VOID(CheckSame(file, fd.get()));
  if (as == OpenAs::kScattered) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return fd;
}

bool OpenFiles::HasRoomFor(const Key& key) const {
  return open_.size() < open_max_ || !idle_.empty() || open_.contains(key);
}

Result<int> OpenFiles::Acquire(size_t file, OpenAs as) {
  std::unique_lock lock(mutex_);
  const Key key(file, as);
  released_.wait(lock, [&] { return HasRoomFor(key); });
  return AcquireLocked(key);
}

Result<std::optional<int>> OpenFiles::TryAcquire(size_t file, OpenAs as) {
  const std::lock_guard lock(mutex_);
  const Key key(file, as);
  if (!HasRoomFor(key)) return std::nullopt;
  return AcquireLocked(key);
}

// The lock is held while a file is opened. Files are opened rarely, and a second thread would
// mostly open the same one.
Result<int> OpenFiles::AcquireLocked(const Key& key) {
  const auto found = open_.find(key);
  if (found != open_.end()) {
    if (found->second.use_count++ == 0) idle_.erase(found->second.idle);
    return found->second.fd.get();
  }
  if (open_.size() >= open_max_) CloseOne();
  LMDBIO_TRY(UniqueFd fd, Open(key.first, key.second));
  const int number = fd.get();
  open_.emplace(key, OpenedFd{std::move(fd), 1, idle_.end()});
  return number;
}

void OpenFiles::Release(size_t file, OpenAs as) {
  const std::lock_guard lock(mutex_);
  const Key key(file, as);
  OpenedFd& opened = open_.at(key);
  if (--opened.use_count > 0) return;
  opened.idle = idle_.insert(idle_.end(), key);
  released_.notify_all();
}

size_t OpenFiles::open_count() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

Result<OpenFile> OpenFile::Of(OpenFiles& files, size_t file, OpenAs as) {
  LMDBIO_TRY(const int fd, files.Acquire(file, as));
  return OpenFile(files, file, as, fd);
}

Result<std::optional<OpenFile>> OpenFile::TryOf(OpenFiles& files, size_t file, OpenAs as) {
  LMDBIO_TRY(const std::optional<int> fd, files.TryAcquire(file, as));
  if (!fd) return std::nullopt;
  return OpenFile(files, file, as, *fd);
}

size_t OpenFilesMax(uint64_t option) {
  if (option > 0) return std::max(option, kOpenMaxLeast);
  struct rlimit limit = {};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const uint64_t share = is_known ? limit.rlim_cur / kShareOfLimit : kOpenMaxOfDefault;
  return std::clamp(share, kOpenMaxLeast, kOpenMaxOfDefault);
}

}  // namespace lmdbio::file
