#include "lmdbio/device/pointer_cache.h"

#include <array>
#include <bit>
#include <iterator>
#include <optional>

#include "lmdbio/device/device_error.h"

namespace lmdbio::device {
namespace {

DeviceAddress AddressOf(const void* pointer) { return {std::bit_cast<uint64_t>(pointer)}; }

// The element of `ranges` that holds the address.
const PointerFacts* FindIn(const std::map<DeviceAddress, PointerFacts>& ranges,
                           DeviceAddress address) {
  auto found = ranges.upper_bound(address);
  if (found == ranges.begin()) return nullptr;
  const PointerFacts& facts = (--found)->second;
  return address.value - facts.range.begin.value < facts.range.size_bytes ? &facts : nullptr;
}

// The attributes have values of 1, 4 and 8 bytes. Each is read from 8 bytes that were zero.
template <size_t kCount>
Result<std::array<uint64_t, kCount>> QueryAttributes(
    PrimaryContext& context, const void* pointer, std::array<PointerAttribute, kCount> attributes) {
  static_assert(std::endian::native == std::endian::little);
  std::array<uint64_t, kCount> values = {};
  std::array<void*, kCount> places = {};
  for (size_t i = 0; i < kCount; ++i) places[i] = &values[i];
  LMDBIO_TRY_VOID(context.Run("cuPointerGetAttributes", [&](const DriverTable& driver) {
    return driver.PointerGetAttributes(kCount, attributes.data(), places.data(),
                                       AddressOf(pointer).value);
  }));
  return values;
}

Result<uint64_t> QueryBufferId(PrimaryContext& context, const void* pointer) {
  LMDBIO_TRY(const auto values,
             QueryAttributes(context, pointer, std::array{PointerAttribute::kBufferId}));
  return values[0];
}

PointerKind KindOf(uint64_t memory_type, uint64_t is_managed) {
  if (is_managed != 0) return PointerKind::kManaged;
  switch (static_cast<DriverMemoryType>(memory_type)) {
    case DriverMemoryType::kHost:
      return PointerKind::kPinnedHost;
    case DriverMemoryType::kDevice:
      return PointerKind::kDevice;
    default:
      return PointerKind::kPlainHost;
  }
}

}  // namespace

Result<PointerFacts> QueryPointer(PrimaryContext& context, const void* pointer) {
  LMDBIO_TRY(
      const auto values,
      QueryAttributes(context, pointer,
                      std::array{PointerAttribute::kMemoryType, PointerAttribute::kIsManaged,
                                 PointerAttribute::kDeviceOrdinal, PointerAttribute::kRangeBegin,
                                 PointerAttribute::kRangeSizeBytes, PointerAttribute::kBufferId,
                                 PointerAttribute::kCanBeShared}));
  PointerFacts facts;
  facts.kind = KindOf(values[0], values[1]);
  if (facts.kind == PointerKind::kPlainHost) return facts;
  facts.ordinal = static_cast<int>(static_cast<uint32_t>(values[2]));
  facts.range = {{values[3]}, values[4]};
  facts.buffer_id = values[5];
  facts.can_be_shared = values[6] != 0;
  return facts;
}

Result<PointerFacts> PointerCache::Describe(PrimaryContext& context, const void* pointer) {
  if (context.is_forked()) return Fail(ForkedError());  // before the mutex
  std::optional<PointerFacts> kept;
  {
    // A hit takes the mutex once.
    const DeviceAddress address = AddressOf(pointer);
    const std::lock_guard lock(mutex_);
    if (const PointerFacts* const own = FindIn(own_, address); own != nullptr) {
      ++counts_.own_hits;
      return *own;
    }
    if (const PointerFacts* const found = FindIn(foreign_, address); found != nullptr) {
      if (check_ == CacheCheck::kNone) {
        ++counts_.hits;
        return *found;
      }
      kept = *found;
    }
  }
  if (kept) {
    LMDBIO_TRY(const uint64_t buffer_id, QueryBufferId(context, pointer));
    const std::lock_guard lock(mutex_);
    if (buffer_id == kept->buffer_id) {
      ++counts_.hits;
      return *kept;
    }
    DropForeign(kept->range);
    ++counts_.stale;
  }
  LMDBIO_TRY(const PointerFacts facts, QueryPointer(context, pointer));
  const std::lock_guard lock(mutex_);
  ++counts_.queries;
  Keep(facts);
  return facts;
}

void PointerCache::AddOwn(const PointerFacts& facts) {
  const std::lock_guard lock(mutex_);
  DropForeign(facts.range);
  own_[facts.range.begin] = facts;
}

void PointerCache::RemoveOwn(DeviceSpan range) {
  const std::lock_guard lock(mutex_);
  own_.erase(range.begin);
}

PointerCacheCounts PointerCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// A buffer id of 0 would match every answer of a driver that has none.
void PointerCache::Keep(const PointerFacts& facts) {
  if (check_ == CacheCheck::kNoCache) return;
  if (facts.range.size_bytes == 0 || facts.buffer_id == 0) return;
  DropForeign(facts.range);
  foreign_[facts.range.begin] = facts;
  by_age_.push_back(facts.range.begin);
  while (foreign_.size() > ranges_max_) {
    foreign_.erase(by_age_.front());
    by_age_.pop_front();
  }
}

void PointerCache::DropForeign(DeviceSpan range) {
  auto next = foreign_.lower_bound(range.begin);
  if (next != foreign_.begin()) {
    const auto before = std::prev(next);
    const DeviceSpan& other = before->second.range;
    if (range.begin.value - other.begin.value < other.size_bytes) next = before;
  }
  while (next != foreign_.end() && next->first < range.begin + range.size_bytes) {
    std::erase(by_age_, next->first);
    next = foreign_.erase(next);
  }
}

}  // namespace lmdbio::device
