#include "lmdbio/file/io/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kLinksMax = 40;  // the kernel's own limit

Error CannotBeWritten(int error_number, const std::string& path) {
  return ErrnoError(error_number, path, "cannot be written");
}

// The file at `path`, links followed; nullopt if there is none.
Result<std::optional<struct stat>> Look(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) == 0) return found;
  if (errno == ENOENT) return std::nullopt;
  return Fail(CannotBeWritten(errno, path));
}

// The path at the end of the chain of links that begins at `path`. Unlike realpath, this also
// follows a link to a file that does not exist yet.
Result<std::string> FollowLinks(const std::string& path) {
  fs::path name = path;
  for (int i = 0; i < kLinksMax; ++i) {
    std::error_code is_no_link;
    const fs::path next = fs::read_symlink(name, is_no_link);
    if (is_no_link) return name.string();
    name = name.parent_path() / next;  // equals `next` if that is absolute
  }
  return Fail(CannotBeWritten(ELOOP, path));
}

// Whether a rename may replace `target`, the end of the chain of links that begins at `path`. Some
// links in /proc lead to files without a name, which cannot be replaced. The function does not
// compare `target` with `found`, because another writer may just have replaced the file.
bool IsReplaceable(const std::optional<struct stat>& found, const std::string& path,
                   const std::string& target) {
  if (!found) return true;
  if (!S_ISREG(found->st_mode)) return false;
  return target == path || ::access(target.c_str(), F_OK) == 0;
}

Status WriteFully(int fd, const std::string& path, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail(CannotBeWritten(errno, path));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

// Makes a rename in `directory` survive a crash. Errors are ignored: some file systems cannot sync
// a directory, and the content of the file is already on storage.
void SyncDirectory(const fs::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

}  // namespace

OutputFile::OutputFile(std::string path, std::string target, std::string temporary, UniqueFd fd)
    : path_(std::move(path)),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      fd_(std::move(fd)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  LMDBIO_TRY(const std::optional<struct stat> found, Look(path));
  if (found && S_ISSOCK(found->st_mode)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: cannot be written: it is a socket; name a file", path));
  }
  LMDBIO_TRY(std::string target, FollowLinks(path));
  std::string temporary;
  UniqueFd fd;
  // The temporary file is in the directory of the target, so the rename stays in one file system.
  if (IsReplaceable(found, path, target)) {
    temporary = fmt::format("{}.{:08x}.tmp", target, std::random_device()());
    fd = UniqueFd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } else {
    // A device or FIFO has no content that a rename could protect.
    fd = UniqueFd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  }
  if (!fd) return Fail(CannotBeWritten(errno, path));
  return std::unique_ptr<OutputFile>(
      new OutputFile(path, std::move(target), std::move(temporary), std::move(fd)));
}

Status OutputFile::Write(Bytes bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) LMDBIO_TRY_VOID(Flush());
  // Large writes gain nothing from the buffer.
  if (bytes.size() > kBufferBytes) return WriteFully(fd_.get(), path_, bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status OutputFile::Flush() {
  LMDBIO_TRY_VOID(WriteFully(fd_.get(), path_, buffer_));
  buffer_.clear();
  return {};
}

Status OutputFile::Publish() {
  LMDBIO_TRY_VOID(Flush());
  // Devices and FIFOs are not synced, because most of them refuse it.
  const bool is_synced = temporary_.empty() || ::fsync(fd_.get()) == 0;
  if (!is_synced || ::close(fd_.release()) != 0) return Fail(CannotBeWritten(errno, path_));
  return temporary_.empty() ? Status() : Replace();
}

Status OutputFile::Replace() {
  // The content was synced before. So after a crash the name leads to the old file or to the new
  // one.
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return Fail(ErrnoError(errno, path_, "cannot be replaced"));
  }
  temporary_.clear();
  const fs::path parent = fs::path(target_).parent_path();
  SyncDirectory(parent.empty() ? fs::path(".") : parent);
  return {};
}

}  // namespace lmdbio::file
