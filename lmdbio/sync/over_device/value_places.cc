#include "lmdbio/sync/over_device/value_places.h"

#include <atomic>
#include <new>
#include <utility>

#include "lmdbio/base/align.h"

namespace lmdbio::sync {
namespace {

struct alignas(kCacheLineBytes) PlaceLine {
  std::atomic<uint64_t> offset = 0;
};
static_assert(sizeof(PlaceLine) == kCacheLineBytes);

std::atomic<uint64_t>& OffsetIn(const ranks::SharedMemory& memory, int rank) {
  return std::launder(reinterpret_cast<PlaceLine*>(memory.bytes().data()))[rank].offset;
}

}  // namespace

Result<ValuePlaces> ValuePlaces::Make(ranks::Group& group) {
  const uint64_t size_bytes = static_cast<uint64_t>(group.size()) * sizeof(PlaceLine);
  LMDBIO_TRY(auto memory, group.AllocateShared(size_bytes));
  return ValuePlaces(group.rank(), std::move(memory));
}

// The meeting orders it before the loads of others.
void ValuePlaces::Publish(uint64_t offset) {
  OffsetIn(*memory_, rank_).store(offset, std::memory_order_release);
}

uint64_t ValuePlaces::OffsetOf(int rank) const {
  return OffsetIn(*memory_, rank).load(std::memory_order_acquire);
}

}  // namespace lmdbio::sync
