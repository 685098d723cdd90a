#include "lmdbio/file/source/read_ahead_source.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/base/check.h"

namespace lmdbio::file {
namespace {

// Large enough to make the system call cheap. Small enough to stay in the second-level cache
// between the copy by the kernel and the copy to the caller.
constexpr uint64_t kBufferBytes = 256 << 10;

// A request may start so many bytes after the end of the buffer and still continue the pass.
constexpr uint64_t kSkipBytesMax = 64 << 10;

// Reads below this offset are never buffered. The head of the file has two meta pages of at most 64
// KiB, which show commits by a writer, so a caller must see their current bytes.
constexpr uint64_t kHeadBytes = 128 << 10;

}  // namespace

Result<std::unique_ptr<ReadAheadSource>> ReadAheadSource::Open(const std::string& data_path) {
  LMDBIO_TRY(std::unique_ptr<FileSource> file, FileSource::Open(data_path));
  return std::unique_ptr<ReadAheadSource>(new ReadAheadSource(std::move(file)));
}

bool ReadAheadSource::Holds(Extent extent) const {
  return extent.offset >= held_.offset && extent.length_bytes <= held_.length_bytes &&
         extent.offset - held_.offset <= held_.length_bytes - extent.length_bytes;
}

// Whether a request continues the pass: it is small, and starts in the buffer or shortly after it.
bool ReadAheadSource::Continues(Extent extent) const {
  const uint64_t end = held_.offset + held_.length_bytes;
  return extent.length_bytes <= kBufferBytes / 2 && extent.offset >= held_.offset &&
         extent.offset <= end + kSkipBytesMax;
}

// Reads up to kBufferBytes at `offset`. A file that ends earlier is no error here; a request past
// the end fails when it reads the file directly.
Status ReadAheadSource::Fill(uint64_t offset) const {
  held_ = {};
  LMDBIO_TRY(const uint64_t size_bytes, file_->SizeBytes());
  if (offset >= size_bytes) return {};
  buffer_.resize(kBufferBytes);
  const uint64_t length_bytes = std::min(kBufferBytes, size_bytes - offset);
  LMDBIO_TRY_VOID(file_->Read({offset, length_bytes}, buffer_));
  held_ = {offset, length_bytes};
  return {};
}

Result<Bytes> ReadAheadSource::Read(Extent extent, MutableBytes scratch) const {
  LMDBIO_CHECK(scratch.size() >= extent.length_bytes);
  if (extent.offset < kHeadBytes) return file_->Read(extent, scratch);
  const std::lock_guard lock(mutex_);
  // If the fill fails, the direct read below reports the error of this request.
  if (!Holds(extent) && Continues(extent) && !Fill(extent.offset)) held_ = {};
  if (!Holds(extent)) {
    // The next request may continue from here.
    if (extent.length_bytes <= kBufferBytes / 2) held_ = {extent.offset, 0};
    return file_->Read(extent, scratch);
  }
  if (extent.length_bytes > 0) {
    std::memcpy(scratch.data(), buffer_.data() + (extent.offset - held_.offset),
                extent.length_bytes);
  }
  return Bytes(scratch.first(extent.length_bytes));
}

}  // namespace lmdbio::file
