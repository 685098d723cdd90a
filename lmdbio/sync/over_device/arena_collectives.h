// lmdbio/sync/over_device/arena_collectives.h - ranks reduce values in memory of their GPUs, or
// copy those of one rank, as an interface.
//
// Each rank has its values in an arena, which is memory of its own GPU. device_collectives.h has
// the way of kernels of lmdbio, sync/over_nccl that of NCCL, and sync/over_library that of MPI.
//
// Source: docs/device_collectives.md "Interfaces".
#ifndef LMDBIO_SYNC_OVER_DEVICE_ARENA_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_DEVICE_ARENA_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_device/result_state.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// Where an AllReduce may leave its result.
enum class ResultPlace : uint8_t {
  kInPlace,   // where the values are
  kAnywhere,  // at ArenaCollectives::ResultOf
};

// In the arena of a rank.
struct DeviceValues {
  uint64_t offset = 0;  // bytes; fast if those of all ranks have the same remainder modulo 16
  size_t count = 0;     // elements
  DataType type = DataType::kFloat32;
  ResultPlace result = ResultPlace::kInPlace;

  uint64_t size_bytes() const { return count * ElementBytes(type); }
};

// Errors: kInvalidArgument  the values are not inside the arena
Status CheckInside(const DeviceValues& values, const device::DeviceSpan& arena);
// Ranks that make another call, or the same one with other values, have another digest. The offset
// and the place of the result do not count.
uint64_t DigestOfReduction(const CallTag& tag, const DeviceValues& values,
                           const Reduction& reduction);
uint64_t DigestOfBroadcast(const CallTag& tag, const DeviceValues& values, int root);

// Threads: one at a time, except Poison, Stop and Check.
class ArenaCollectives {
 public:
  virtual ~ArenaCollectives() = default;

  // The memory of this rank in which values are reduced.
  virtual device::DeviceSpan arena() const = 0;
  // Where an AllReduce of these values leaves its result, until the next call.
  virtual device::DeviceAddress ResultOf(const DeviceValues& values) const = 0;

  // Whether AllReduce takes such values. The same on every rank.
  virtual bool Reduces(DataType /*type*/, ReduceOp /*op*/) const { return true; }
  // Collective. The values of every rank become the reduction of all of them. Returns when this
  // rank's work is enqueued on `stream`: behind what is there already, and what follows there sees
  // the result. It is void if a rank fails before it is computed: ask result_state() when that
  // work is done.
  // values     the same on every rank, except the offset and the place of the result
  // reduction  the same on every rank
  // stream  of the GPU; its work follows that of the streams of all earlier calls
  // Requires: Reduces
  // Returns: kDeclined  no arena has changed
  // Errors: kInvalidArgument  the values are not inside the arena, or the scale of integers is not
  //                           finite; the other ranks are not asked
  //         as Collectives, and those of checks in waits
  //         kInternal  the driver fails, by its own name for the reason
  //         After any other error the caller ends the waits of other ranks (ranks::Health::GiveUp),
  //         and only Poison and the destructor may be called.
  virtual Result<CallOutcome> AllReduce(const CallTag& tag, const DeviceValues& values,
                                        const Reduction& reduction,
                                        device::DeviceStream& stream) = 0;

  // Whether Broadcast may be called.
  virtual bool has_broadcast() const = 0;
  // Collective. Copies the values of rank `root` to all ranks, to the bit. The rest as AllReduce.
  // root  [0 <= root < ranks; the same on every rank]
  // Requires: has_broadcast()
  // Errors: as AllReduce
  virtual Result<CallOutcome> Broadcast(const CallTag& tag, const DeviceValues& values, int root,
                                        device::DeviceStream& stream) = 0;

  // After a failure of any rank: no work on a stream waits for another rank any more, as far as the
  // way can do that. Threads: any
  virtual void Poison() = 0;
  // The same, and ends the calls between hosts with this message.
  // Threads: any
  virtual void Stop(const Error& why) = 0;
  // Whether what is enqueued can still be done, as far as this rank knows. Does not wait.
  // Errors: kInternal  a library that reduces has failed; names its reason
  // Threads: any
  virtual Status Check() { return {}; }

  // Tells whether a result that was enqueued has become void. Threads: any
  // Lifetime: may outlive the collectives
  virtual std::shared_ptr<const ResultState> result_state() const = 0;

  // Collective, after the last call: gives back what other ranks use, and meets them.
  // Requires: all work on streams that uses an arena is done
  // Errors: as Collectives::Barrier; kPeerFailed  another rank makes another call
  virtual Status LeaveInPeace() = 0;

  // The way, as lines of text.
  virtual std::string Description() const = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_ARENA_COLLECTIVES_H_
