#include "lmdbio/device/device_mark.h"

#include <fmt/format.h>

namespace lmdbio::device {

Result<DeviceMark> DeviceMark::In(const PinnedBytes& memory, uint64_t offset) {
  const DeviceSpan span = memory.span();
  const auto host = reinterpret_cast<uintptr_t>(memory.bytes().data());
  if (!span.Holds(offset, sizeof(uint64_t)) || (span.begin.value + offset) % 8 != 0 ||
      (host + offset) % 8 != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a mark at offset {} of {} pinned bytes: it needs 8 bytes there, at a "
                            "multiple of 8",
                            offset, span.size_bytes));
  }
  return DeviceMark(reinterpret_cast<uint64_t*>(host + offset), span.begin + offset);
}

bool DeviceMark::HasReached(uint64_t value) const {
  return static_cast<int64_t>(this->value() - value) >= 0;
}

void DeviceMark::Raise(uint64_t value) const {
  uint64_t found = Word().load(std::memory_order_relaxed);
  while (!Word().compare_exchange_weak(found, value | (found & kMarkPoison),
                                       std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}

void DeviceMark::Poison() const { Word().fetch_or(kMarkPoison, std::memory_order_acq_rel); }

}  // namespace lmdbio::device
