// lmdbio/sync/on_device/staging_ring.h - pinned memory through which tensors of a device pass to
// calls of the host, and back.
//
//   stream "out"   await ready | pack 0 | pack 1 | pack 2 ...
//   host                          look 0, call 0 | look 1, call 1 | ...
//   stream "in"                              unpack 0         unpack 1 ...
//
// The memory is a ring of slots, each for one chunk. While the host is in the call of a chunk,
// later chunks are copied out and earlier ones are copied in. A slot is written again behind the
// event of the copy that reads it. The host only looks at events.
//
// Source: docs/device_sync.md.
#ifndef LMDBIO_SYNC_ON_DEVICE_STAGING_RING_H_
#define LMDBIO_SYNC_ON_DEVICE_STAGING_RING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/on_device/device_waits.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/on_device/staged_work.h"

namespace lmdbio::sync {

// A call of the host with the values of a chunk, which it replaces by the result.
using ChunkCall = std::function<Result<CallOutcome>(MutableBytes values, uint64_t chunk)>;

// Counts since the ring was made.
struct StagingCounters {
  uint64_t tensor_count = 0;  // with an input or an output
  uint64_t out_bytes = 0;     // to the host
  uint64_t in_bytes = 0;      // to the device
  uint64_t copy_count = 0;    // copies and launches of kernels
  uint64_t wait_ns = 0;       // in which the host waited for tensors and their copies
};

// All of them outlive the ring.
struct StagingParts {
  device::Device& gpu;
  const kernels::DeviceKernels* packer;  // null: one copy for each part of a tensor
  EventPool& events;
  const DeviceWaits& waits;
};

// Threads: one at a time.
class StagingRing {
 public:
  static constexpr uint64_t kSlotsMax = 4;

  // Pins the memory, and divides it into up to kSlotsMax slots.
  // memory       outlives the ring, and all work of its streams
  // chunk_bytes  [a multiple of 64, > 0, <= memory]
  // Errors: kResourceExhausted  the device is out of memory, or the host refuses to pin
  //         and as Device::Pin, Device::MakeStream
  static Result<std::unique_ptr<StagingRing>> Make(const StagingParts& parts, MutableBytes memory,
                                                   uint64_t chunk_bytes);

  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t slot_count() const { return slots_.size(); }
  // The memory of the next chunk is the first slot again. After a call that this rank has declined,
  // so that all ranks use the same slots.
  void Restart() { next_slot_ = 0; }

  // Makes the call for each chunk in turn. Returns when the last result is enqueued.
  // kDeclined: no output is written. The first call decides; the others must be kDone, too.
  // Errors: those of the call, and as DeviceWaits::AwaitDone. After an error work may be under way.
  Result<StagedResult> Run(const StagedWork& work, const ChunkCall& call);

  // Whether all work is done. Errors: as DeviceStream::IsDone
  Result<bool> IsIdle() const;

  const StagingCounters& counters() const { return counters_; }

 private:
  struct StagingSlot {
    uint64_t offset;
    device::DeviceEvent is_out;
    device::DeviceEvent is_in;
  };
  StagingRing(const StagingParts& parts, device::PinnedBytes pinned, device::DeviceStream out,
              device::DeviceStream in, uint64_t chunk_bytes);

  Status StartOut(const StagedWork& work, uint64_t chunk, StagingSlot& slot);
  Status FinishOut(const StagedWork& work, uint64_t chunk, const StagingSlot& slot);
  Status StartIn(const StagedWork& work, uint64_t chunk, StagingSlot& slot);
  Status Move(CopyWay way, const StagedWork& work, uint64_t chunk, const StagingSlot& slot);
  MutableBytes BytesOf(const StagingSlot& slot, uint64_t offset, uint64_t size_bytes) const;

  const StagingParts parts_;
  const uint64_t chunk_bytes_;
  device::PinnedBytes pinned_;
  device::DeviceStream out_;
  device::DeviceStream in_;
  std::vector<StagingSlot> slots_;
  size_t next_slot_ = 0;
  StagingCounters counters_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_STAGING_RING_H_
