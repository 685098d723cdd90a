#include "lmdbio/file/output/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/output/file_limit.h"
#include "lmdbio/file/output/output_place.h"

namespace lmdbio::file {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

Error CannotBeWritten(int error_number, const std::string& path) {
  return ErrnoError(error_number, path, "cannot be written");
}

}  // namespace

OutputFile::OutputFile(std::string path, std::optional<NewFile> new_file, UniqueFd stream)
    : path_(std::move(path)), new_file_(std::move(new_file)), stream_(std::move(stream)) {}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  LMDBIO_TRY(OutputPlace place, OutputPlace::Find(path));
  std::optional<NewFile> new_file;
  UniqueFd stream;
  if (place.kind() == PlaceKind::kFile) {
    LMDBIO_TRY(NewFile made, NewFile::Create(std::move(place)));
    new_file.emplace(std::move(made));
  } else {
    // A device or FIFO has no content that a rename could protect.
    LMDBIO_TRY(stream, place.OpenDirectly());
  }
  return std::unique_ptr<OutputFile>(new OutputFile(path, std::move(new_file), std::move(stream)));
}

Status OutputFile::WriteThrough(Bytes bytes) {
  const UniqueFd& file = new_file_ ? new_file_->file() : stream_;
  if (new_file_ && !IsWithinFileLimit(file, written_bytes_ + bytes.size())) {
    return Fail(CannotBeWritten(EFBIG, path_));
  }
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail(CannotBeWritten(errno, path_));
    written_bytes_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status OutputFile::Write(Bytes bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    LMDBIO_TRY_VOID(WriteThrough(buffer_));
    buffer_.clear();
  }
  // Large writes gain nothing from the buffer.
  if (bytes.size() > kBufferBytes) return WriteThrough(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status OutputFile::Publish() {
  LMDBIO_TRY_VOID(WriteThrough(buffer_));
  if (new_file_) return new_file_->Publish();
  // Devices and FIFOs are not synced, because most of them refuse it.
  if (::close(stream_.release()) != 0) return Fail(CannotBeWritten(errno, path_));
  return {};
}

}  // namespace lmdbio::file
