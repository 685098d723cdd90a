#include "lmdbio/file/output/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/output/file_owner.h"

namespace lmdbio::file {
namespace {

constexpr int kNewFileFlags = O_RDWR | O_CLOEXEC;
constexpr mode_t kNewFileMode = 0666;  // without the bits of umask
constexpr size_t kCopyBytes = 64 << 10;

void RemoveOldWork(const OutputPlace& place) {
  for (uint32_t number = 0; number < kWorkingNames; ++number) {
    RemoveAbandoned(place.folder(), WorkingName(place.name(), number));
  }
}

// Calls `make` with working names until it returns something else than EEXIST. Returns that errno,
// or 0, and the name in `chosen`.
int WithWorkingName(const OutputPlace& place, std::string& chosen,
                    const std::function<int(const std::string&)>& make) {
  for (uint32_t number = 0; number < kWorkingNames; ++number) {
    chosen = WorkingName(place.name(), number);
    const int error_number = make(chosen);
    if (error_number != EEXIST) return error_number;
  }
  chosen = WorkingName(place.name(), std::random_device()());
  return make(chosen);
}

bool HasName(const UniqueFd& file) {
  struct stat found = {};
  return ::fstat(file.get(), &found) == 0 && found.st_nlink > 0;
}

// Returns errno, or 0.
int Copy(const UniqueFd& from, const UniqueFd& to) {
  std::array<char, kCopyBytes> bytes = {};
  off_t at = 0;
  while (true) {
    const ssize_t size = ::pread(from.get(), bytes.data(), bytes.size(), at);
    if (size == 0) return 0;
    if (size < 0 && errno != EINTR) return errno;
    for (ssize_t done = 0; done < size;) {
      const ssize_t part = ::write(to.get(), bytes.data() + done, static_cast<size_t>(size - done));
      if (part < 0 && errno != EINTR) return errno;
      if (part > 0) done += part;
    }
    if (size > 0) at += size;
  }
}

// Makes the names of the folder survive a crash. Errors are ignored: some file systems cannot sync
// a folder, and the content of the file is already on storage.
void SyncNames(int folder) {
  const UniqueFd opened(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) ::fsync(opened.get());
}

}  // namespace

NewFile::NewFile(NewFile&& other) noexcept
    : place_(std::move(other.place_)),
      file_(std::move(other.file_)),
      working_name_(std::exchange(other.working_name_, {})) {}

NewFile::~NewFile() {
  if (!working_name_.empty()) ::unlinkat(place_.folder(), working_name_.c_str(), 0);
}

Result<NewFile> NewFile::Create(OutputPlace place) {
  NewFile made(std::move(place));
  RemoveOldWork(made.place_);
  made.file_ =
      UniqueFd(::openat(made.place_.folder(), ".", kNewFileFlags | O_TMPFILE, kNewFileMode));
  if (made.file_) {
    LockAsOwner(made.file_);
    return made;
  }
  // For any reason: the errors of this way are those that the user understands.
  const int error_number = made.MakeNamed();
  if (error_number == 0) return made;
  return Fail(ErrnoError(error_number, made.place_.path(), "cannot be written"));
}

// Gives `file_` a new file with a working name. Returns errno, or 0.
int NewFile::MakeNamed() {
  UniqueFd made;
  std::string name;
  const int error_number = WithWorkingName(place_, name, [&](const std::string& working_name) {
    made = UniqueFd(::openat(place_.folder(), working_name.c_str(),
                             kNewFileFlags | O_CREAT | O_EXCL | O_NOFOLLOW, kNewFileMode));
    if (!made) return errno;
    // Until it is locked, another process may take the file for an abandoned one.
    return LockAsOwner(made) && HasName(made) ? 0 : EEXIST;
  });
  if (error_number != 0) return error_number;
  working_name_ = std::move(name);
  file_ = std::move(made);
  return 0;
}

// Gives the file its first name. Returns errno, or 0.
int NewFile::Link(const std::string& name) const {
  const std::string number = fmt::format("/proc/self/fd/{}", file_.get());
  if (::linkat(AT_FDCWD, number.c_str(), place_.folder(), name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return 0;
  }
  if (errno == EEXIST) return EEXIST;
  // Without /proc. Old kernels permit this to root only.
  return ::linkat(file_.get(), "", place_.folder(), name.c_str(), AT_EMPTY_PATH) == 0 ? 0 : errno;
}

// For sandboxes that forbid names for files without one. Returns errno, or 0.
int NewFile::CopyToWorkingName() {
  const UniqueFd content = std::exchange(file_, UniqueFd());
  const int error_number = MakeNamed();
  if (error_number != 0) return error_number;
  const int copied = Copy(content, file_);
  if (copied != 0) return copied;
  return ::fsync(file_.get()) == 0 ? 0 : errno;
}

Status NewFile::Publish() {
  const auto failed = [this](int error_number) {
    return Fail(ErrnoError(error_number, place_.path(), "cannot be written"));
  };
  if (::fsync(file_.get()) != 0) return failed(errno);
  if (!working_name_.empty()) return Replace();
  int error_number = Link(place_.name());
  if (error_number == 0) {
    SyncNames(place_.folder());
    return {};
  }
  if (error_number == EEXIST) {
    std::string name;
    error_number =
        WithWorkingName(place_, name, [this](const std::string& one) { return Link(one); });
    if (error_number == 0) working_name_ = std::move(name);
  }
  if (error_number != 0) error_number = CopyToWorkingName();
  if (error_number != 0) return failed(error_number);
  return Replace();
}

// The content was synced before. So after a crash the name leads to the old file or to the new one.
Status NewFile::Replace() {
  const char* const name = place_.name().c_str();
  struct stat found = {};
  if (::fstatat(place_.folder(), name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISREG(found.st_mode)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: cannot be replaced: it is no longer a regular file", place_.path()));
  }
  if (::renameat(place_.folder(), working_name_.c_str(), place_.folder(), name) != 0) {
    return Fail(ErrnoError(errno, place_.path(), "cannot be replaced"));
  }
  working_name_.clear();
  SyncNames(place_.folder());
  return {};
}

}  // namespace lmdbio::file
