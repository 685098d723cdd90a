#include "lmdbio/feed/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::feed {
namespace {

// Sizes grow by half at least, because pinning may wait for the device.
constexpr uint64_t kLeastBytes = 64 << 10;

}  // namespace

Status PinnedMemory::Grow(device::Device& gpu, uint64_t size_bytes) {
  if (size_bytes <= this->size_bytes()) return {};
  const uint64_t page = MemoryPageBytes();
  const uint64_t old_bytes = this->size_bytes();
  const uint64_t whole_bytes =
      AlignUp(std::max({size_bytes, old_bytes + old_bytes / 2, kLeastBytes}), page);
  pinned_.reset();
  // Whole pages, because a page can be pinned once only.
  memory_.reset(new (std::nothrow) std::byte[whole_bytes + page]());
  if (memory_ == nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("no memory for {} bytes to pin", whole_bytes + page));
  }
  const auto begin = std::bit_cast<uint64_t>(memory_.get());
  LMDBIO_TRY(device::PinnedBytes pinned,
             gpu.Pin({memory_.get() + (AlignUp(begin, page) - begin), whole_bytes}));
  pinned_.emplace(std::move(pinned));
  return {};
}

}  // namespace lmdbio::feed
