#include "lmdbio/file/source/read_ahead_source.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/base/check.h"

namespace lmdbio::file {
namespace {

// Large enough to make the system call cheap, small enough to stay in the second-level cache
// between the kernel's copy and ours.
constexpr uint64_t kBufferBytes = 256 << 10;

// How far behind the buffer a request may start and still count as the continuation of the pass.
constexpr uint64_t kSkipBytesMax = 64 << 10;

// What starts here is never buffered: a file may tell of changes at its head (two meta pages of at
// most 64 KiB), and whoever looks there again wants to see them.
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

bool ReadAheadSource::Continues(Extent extent) const {
  const uint64_t end = held_.offset + held_.length_bytes;
  return extent.length_bytes <= kBufferBytes / 2 && extent.offset >= held_.offset &&
         extent.offset <= end + kSkipBytesMax;
}

// Fewer bytes than a buffer are no error here: the file may end. Who asks for more learns it.
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
  // A failed fill is not an answer to this request: the direct read below words its own error.
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
