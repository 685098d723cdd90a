// lmdbio/sync/over_device_wire/device_wire_values.h - values on a GPU that are reduced over a wire.
//
//   send              copy to a slot | look at its event | the wire sends the slot
//   reduce            the wire fills a slot | a kernel adds it to the values, and writes the slot
//                     of the next send if the values are passed on
//   store             the wire fills a slot | copy to the values
//
// Kernels read and write pinned memory in place. The host waits for no work of the GPU but the
// copies and kernels whose slots it sends, or fills again. It looks at their events.
//
// Source: Awan et al. V-A; docs/device_wires.md.
#ifndef LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_VALUES_H_
#define LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_VALUES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_device_wire/wire_slots.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::sync {

// All of them outlive the values.
struct DeviceWireParts {
  Wire& wire;
  WireSlots& slots;
  const kernels::DeviceKernels& kernels;
  const std::function<Status()>& check;  // called in waits for the GPU; an error ends them
};

// The values of one call.
class DeviceWireValues final : public WireValues {
 public:
  // Of a call: a lane of slots for the messages to each peer, and one for those from it.
  struct WireLanes {
    uint64_t peer_count = 0;  // > 0; the ranks to which this rank sends, or from which it receives
    uint64_t depth = 0;       // > 0; the slots of a lane
    uint64_t slot_count() const { return 2 * peer_count * depth; }
  };

  // pieces  those of `values`; a chunk fits into a slot
  // stream  outlives this
  DeviceWireValues(const DeviceWireParts& parts, const DeviceArray& values,
                   const WirePieces& pieces, const WireLanes& lanes, device::DeviceStream& stream)
      : parts_(parts), values_(values), pieces_(pieces), lanes_(lanes), stream_(stream) {}

  // Before any other call.
  // Errors: as DeviceStream::Record
  Status Begin();

  int rank() const override { return parts_.wire.rank(); }
  int size() const override { return parts_.wire.size(); }
  const WirePieces& pieces() const override { return pieces_; }
  Status StartSend(int to, const ValueRange& chunk) override;
  Status AwaitSend(int to) override;
  Status StartStore(int from, const ValueRange& chunk) override { return Expect(from, chunk); }
  Status FinishStore(int from, const ValueRange& chunk, int forward_to) override;
  Status StartReduce(int from, uint64_t /*turn*/, const ValueRange& chunk) override {
    return Expect(from, chunk);
  }
  Status FinishReduce(int from, uint64_t turn, const ValueRange& chunk, const Reduction& reduction,
                      int forward_to) override;
  Status FinishReduceOfAll(uint64_t turn, const ValueRange& chunk,
                           const Reduction& reduction) override;

 private:
  // Messages are counted from the first one. Message n of a lane uses its slot n mod depth.
  struct OutLane {
    uint64_t first_slot = 0;
    std::deque<ValueRange> chunks;  // of the messages that the wire does not have yet
    uint64_t begun = 0;             // by StartSend
    uint64_t copied = 0;            // the GPU writes, or has written, their slots
    uint64_t left = 0;              // the wire has them
    uint64_t sent = 0;              // the wire has sent them, so their slots are free
    uint64_t awaited = 0;
  };
  struct InLane {
    uint64_t first_slot = 0;
    std::deque<ValueRange> chunks;  // of the messages that the wire does not expect yet
    uint64_t begun = 0;             // by StartStore, StartReduce
    uint64_t posted = 0;            // the wire expects, or has received them
    uint64_t finished = 0;          // the GPU reads, or has read, their slots
  };

  OutLane& LaneTo(int to);
  InLane& LaneFrom(int from);
  uint64_t SlotOf(uint64_t first_slot, uint64_t message) const {
    return first_slot + message % lanes_.depth;
  }
  device::DeviceAddress AddressOf(const ValueRange& chunk) const {
    return values_.begin + chunk.begin;
  }
  // As the GPU sees a chunk in a slot.
  device::DeviceSpan SpanIn(uint64_t slot, const ValueRange& chunk) const {
    return {parts_.slots.AddressOf(slot, AddressOf(chunk)), chunk.size_bytes};
  }
  MutableBytes BytesIn(uint64_t slot, const ValueRange& chunk) const {
    return parts_.slots.BytesOf(slot, AddressOf(chunk), chunk.size_bytes);
  }
  bool HasRoom(const OutLane& lane) const { return lane.copied - lane.sent < lanes_.depth; }
  bool HasRoom(const InLane& lane) const { return lane.posted - lane.finished < lanes_.depth; }

  Status Expect(int from, const ValueRange& chunk);
  Status StartCopy(OutLane& lane);
  Status Advance(int to, OutLane& lane);
  Status Advance(int from, InLane& lane);
  // Goes on with all that is begun, without a wait.
  Status AdvanceAll();
  // Whether AdvanceAll has something to do, now or after a while.
  bool HasWork() const;
  // Advances until `is_done`, or until only the wire has work.
  Status AdvanceUntil(const std::function<Result<bool>()>& is_done);
  Status AwaitArrival(int from);
  // The GPU has begun to read the slot of the oldest message, and to write values.
  Status FinishRead(InLane& lane);
  Status Launch(const ValueRange& chunk, std::span<const device::DeviceSpan> sources,
                std::span<const device::DeviceSpan> targets, const Reduction& reduction);

  const DeviceWireParts parts_;
  const DeviceArray values_;
  const WirePieces pieces_;
  const WireLanes lanes_;
  device::DeviceStream& stream_;
  std::map<int, OutLane> out_;  // by rank
  std::map<int, InLane> in_;
  uint64_t used_slots_ = 0;
  // Behind the last work of stream_ that has written values. Null: the copies out wait for it.
  const device::DeviceEvent* written_ = nullptr;
  bool is_begun_ = false;  // on the GPU: the slots of the call before are free
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_VALUES_H_
