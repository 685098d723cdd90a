#include "lmdbio/sync/over_device_wire/wire_slots.h"

#include <bit>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::sync {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceStream;
using device::PinnedBytes;

// Whole pages, because a page can be pinned once only.
Result<std::unique_ptr<WireSlots>> WireSlots::Make(device::Device& gpu, uint64_t size_bytes,
                                                   size_t slots_max) {
  const uint64_t page = MemoryPageBytes();
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[size_bytes + page]());
  if (memory == nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("no memory for {} bytes to pin", size_bytes + page));
  }
  const auto begin = std::bit_cast<uint64_t>(memory.get());
  const MutableBytes pages(memory.get() + (AlignUp(begin, page) - begin), size_bytes);
  LMDBIO_TRY(PinnedBytes pinned, gpu.Pin(pages));
  LMDBIO_TRY(DeviceStream out, gpu.MakeStream());
  LMDBIO_TRY(DeviceEvent start, gpu.MakeEvent(DeviceEventKind::kLocal));
  std::unique_ptr<WireSlots> slots(
      new WireSlots(std::move(memory), std::move(pinned), std::move(out), std::move(start)));
  for (size_t i = 0; i < slots_max; ++i) {
    LMDBIO_TRY(DeviceEvent event, gpu.MakeEvent(DeviceEventKind::kLocal));
    slots->events_.push_back(std::move(event));
  }
  return slots;
}

uint64_t WireSlots::SlotBytes(uint64_t slot_count) const {
  return AlignDown(pinned_.bytes().size() / slot_count, kCacheLineBytes);
}

uint64_t WireSlots::ChunkBytesMax(uint64_t slot_count) const {
  return SlotBytes(slot_count) - kWordBytes;
}

}  // namespace lmdbio::sync
