// lmdbio/sync/on_device/arena_mover.h - tensors of a GPU pass through an arena on the same GPU.
//
//   stream   await ready | pack chunk 0 | call 0 | unpack 0 | pack chunk 1 | call 1 | ...
//
// All work is on one stream, so a chunk is packed behind the one before it, and the host waits for
// nothing but the calls.
//
// Tensors that lie in memory that the calls use already are neither packed nor unpacked.
//
// Source: docs/device_collectives.md "Data flow".
#ifndef LMDBIO_SYNC_ON_DEVICE_ARENA_MOVER_H_
#define LMDBIO_SYNC_ON_DEVICE_ARENA_MOVER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/on_device/staged_work.h"

namespace lmdbio::sync {

// A call with `size_bytes` bytes at the begin of the arena, or with those of a chunk of tensors in
// place. They are replaced by the result. The call enqueues its work on the stream.
using ArenaCall = std::function<Result<CallOutcome>(uint64_t size_bytes, uint64_t chunk,
                                                    device::DeviceStream& stream)>;

// Where the call of a chunk leaves its result, which is unpacked there.
using ArenaResult = std::function<device::DeviceAddress(uint64_t size_bytes)>;

enum class ArenaUse : uint8_t {
  kPacked,   // the tensors are copied into the arena, and out of it
  kInPlace,  // the call finds the tensors where they are, and writes them there
};

// Counts since the mover was made.
struct ArenaCounters {
  uint64_t tensor_count = 0;  // with an input or an output
  uint64_t bytes = 0;         // of the calls that were made
  uint64_t copy_count = 0;    // copies, fills, and launches that pack or unpack
};

// All of them outlive the mover.
struct ArenaMoverParts {
  device::Device& gpu;
  const kernels::DeviceKernels& packer;
  EventPool& events;
};

// Threads: one at a time.
class ArenaMover {
 public:
  // arena  [> 0 bytes] outlives the mover and all work of its stream
  // Errors: as Device::MakeStream
  static Result<std::unique_ptr<ArenaMover>> Make(const ArenaMoverParts& parts,
                                                  device::DeviceSpan arena);

  // The largest chunk.
  uint64_t chunk_bytes() const { return arena_.size_bytes; }

  // Makes the call for each chunk in turn. Returns when all is enqueued.
  // result_of  of a call with packed tensors; empty: it is in the arena
  // kDeclined: no output is written. The first call decides; the others must be kDone, too.
  // Errors: those of the call; kInternal  the driver fails, by its own name for the reason
  //         After an error work may be under way.
  Result<StagedResult> Run(const StagedWork& work, ArenaUse use, const ArenaCall& call,
                           const ArenaResult& result_of = {});

  // Whether all work is done. Errors: as DeviceStream::IsDone
  Result<bool> IsIdle() const { return stream_.IsDone(); }

  const ArenaCounters& counters() const { return counters_; }

 private:
  ArenaMover(const ArenaMoverParts& parts, device::DeviceSpan arena, device::DeviceStream stream)
      : parts_(parts), arena_(arena), stream_(std::move(stream)) {}

  Status Pack(const StagedWork& work, uint64_t chunk);
  // buffer  where the values of the chunk are, or are to be
  Status Move(CopyWay way, const StagedWork& work, uint64_t chunk, device::DeviceAddress buffer);
  Status FillZeros(const StagedWork& work, uint64_t chunk);

  const ArenaMoverParts parts_;
  const device::DeviceSpan arena_;
  device::DeviceStream stream_;
  ArenaCounters counters_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_ARENA_MOVER_H_
