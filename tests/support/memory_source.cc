#include "tests/support/memory_source.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::test {

MemorySource::MemorySource(std::vector<std::byte> content, std::string name, MemoryReads reads)
    : content_(std::move(content)), name_(std::move(name)), reads_(reads) {}

Result<Bytes> MemorySource::Read(Extent extent, MutableBytes scratch) const {
  const uint64_t index = request_count_.fetch_add(1);
  if (index == fail_index_) {
    faults_delivered_.fetch_add(1);
    return Fail(ErrorCode::kIo, fmt::format("{}: {} bytes at offset {}: injected fault", name_,
                                            extent.length_bytes, extent.offset));
  }
  const uint64_t end = std::min<uint64_t>(content_.size(), readable_bytes_);
  if (extent.offset > end || extent.length_bytes > end - extent.offset) {
    if (end < content_.size()) faults_delivered_.fetch_add(1);
    return Fail(ErrorCode::kCorruption,
                fmt::format("{}: ends at byte {}, before {} bytes at offset {}", name_, end,
                            extent.length_bytes, extent.offset));
  }
  bytes_.fetch_add(extent.length_bytes);
  const Bytes found = Bytes(content_).subspan(extent.offset, extent.length_bytes);
  if (reads_ == MemoryReads::kBorrowed) return found;
  LMDBIO_CHECK(scratch.size() >= found.size());
  std::copy(found.begin(), found.end(), scratch.begin());
  return Bytes(scratch.first(found.size()));
}

ReadCounters MemorySource::counters() const {
  return {.request_count = request_count_.load(), .bytes = bytes_.load()};
}

}  // namespace lmdbio::test
