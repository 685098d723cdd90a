#include "lmdbio/io/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/io/errno_error.h"
#include "lmdbio/io/file_source.h"

namespace lmdbio::io {
namespace {

Status WriteFully(int fd, const std::string& path, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail(ErrnoError(errno, path, "cannot be written"));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

// Makes a rename in `directory` survive a crash. Filesystems that cannot sync a directory say so;
// the file itself is safe either way.
void SyncDirectory(const std::filesystem::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

Status WriteAndRename(UniqueFd fd, const std::string& temporary, const std::string& path,
                      Bytes bytes) {
  LMDBIO_TRY_VOID(WriteFully(fd.get(), path, bytes));
  if (::fsync(fd.get()) != 0 || ::close(fd.release()) != 0) {
    return Fail(ErrnoError(errno, path, "cannot be written"));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return Fail(ErrnoError(errno, path, "cannot be replaced"));
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> ReadSmallFile(const std::string& path, uint64_t size_bytes_max) {
  // Opening a FIFO would wait for a writer.
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: is no regular file", path));
  }
  LMDBIO_TRY(const std::unique_ptr<FileSource> file, FileSource::Open(path));
  const auto with_path = [&](Error&& error) { return std::move(error).Within(path); };
  LMDBIO_TRY(const uint64_t size_bytes, file->SizeBytes().map_error(with_path));
  if (size_bytes > size_bytes_max) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{}: has {} bytes, more than the {} expected at most", path, size_bytes,
                            size_bytes_max));
  }
  std::vector<std::byte> bytes(size_bytes);
  LMDBIO_TRY_VOID(file->Read({0, size_bytes}, bytes).map_error(with_path));
  return bytes;
}

Status WriteFileAtomically(const std::string& path, Bytes bytes) {
  std::random_device random;
  const std::string temporary = fmt::format("{}.{:08x}.tmp", path, random());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return Fail(ErrnoError(errno, path, "cannot be written"));
  Status written = WriteAndRename(std::move(fd), temporary, path, bytes);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  SyncDirectory(parent.empty() ? std::filesystem::path(".") : parent);
  return {};
}

}  // namespace lmdbio::io
