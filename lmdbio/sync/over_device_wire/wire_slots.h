// lmdbio/sync/over_device_wire/wire_slots.h - pinned memory between a GPU and a wire.
#ifndef LMDBIO_SYNC_OVER_DEVICE_WIRE_WIRE_SLOTS_H_
#define LMDBIO_SYNC_OVER_DEVICE_WIRE_WIRE_SLOTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/pinned_bytes.h"

namespace lmdbio::sync {

// Each call divides the memory into slots, one for each message that is under way. All objects of
// the driver are made at the start.
// Threads:  one at a time
// Lifetime: no work of a stream uses it when it is destroyed
class WireSlots {
 public:
  // The begin of a chunk in a slot has the same place in a word of a kernel as in the values.
  static constexpr uint64_t kWordBytes = 16;

  // size_bytes  [whole pages]
  // slots_max   [> 0] of any call
  // Errors: kResourceExhausted  no memory, or the host refuses to pin it
  //         and as Device::Pin, Device::MakeStream, Device::MakeEvent
  static Result<std::unique_ptr<WireSlots>> Make(device::Device& gpu, uint64_t size_bytes,
                                                 size_t slots_max);

  // The size of the largest chunk, if there are so many slots.
  uint64_t ChunkBytesMax(uint64_t slot_count) const;
  // Requires: all work that uses the slots of earlier calls is done, or ordered before what will be
  // begun
  void Divide(uint64_t slot_count) { slot_bytes_ = SlotBytes(slot_count); }

  // The part of a slot for a chunk whose values begin at this address.
  MutableBytes BytesOf(uint64_t slot, device::DeviceAddress values, uint64_t size_bytes) const {
    return pinned_.bytes().subspan(OffsetOf(slot, values), size_bytes);
  }
  // The same as the GPU sees it, and as a place in pinned().
  device::DeviceAddress AddressOf(uint64_t slot, device::DeviceAddress values) const {
    return pinned_.span().begin + OffsetOf(slot, values);
  }
  uint64_t OffsetOf(uint64_t slot, device::DeviceAddress values) const {
    return slot * slot_bytes_ + values.value % kWordBytes;
  }

  const device::PinnedBytes& pinned() const { return pinned_; }
  // The last use of a slot by the GPU.
  device::DeviceEvent& event(uint64_t slot) { return events_[slot]; }
  size_t slots_max() const { return events_.size(); }
  // The begin of a call.
  device::DeviceEvent& begin() { return begin_; }
  // For copies to pinned memory.
  device::DeviceStream& out() { return out_; }

 private:
  WireSlots(std::unique_ptr<std::byte[]> memory, device::PinnedBytes pinned,
            device::DeviceStream out, device::DeviceEvent begin)
      : memory_(std::move(memory)),
        pinned_(std::move(pinned)),
        out_(std::move(out)),
        begin_(std::move(begin)) {}

  uint64_t SlotBytes(uint64_t slot_count) const;

  const std::unique_ptr<std::byte[]> memory_;
  const device::PinnedBytes pinned_;  // of memory_, so it is given back first
  device::DeviceStream out_;
  device::DeviceEvent begin_;
  std::vector<device::DeviceEvent> events_;
  uint64_t slot_bytes_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_WIRE_WIRE_SLOTS_H_
