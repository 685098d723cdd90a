// lmdbio/sync/over_device/device_collectives.h - ranks reduce values on their GPUs, or copy those
// of one rank: in memory that the ranks of a host share. Sums of several hosts are reduced by
// messages between their roots.
//
//   leader   stream: await "ready" of all | reduce its part of all arenas | "done"
//   others   stream: "ready"                           | await "done" of the leaders
//   host     meeting: compare tags | enqueue | meeting: all is enqueued
//   roots    await "done" of the leaders | reduce between hosts | copy to all arenas | "done"
//
// Between several GPUs few values are reduced in one shot: each leader reduces all of them for the
// ranks of its GPU, and writes to no other GPU.
//
// Source: Awan et al. V-A; docs/device_collectives.md.
#ifndef LMDBIO_SYNC_OVER_DEVICE_DEVICE_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_DEVICE_DEVICE_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_device/device_arena.h"
#include "lmdbio/sync/over_device/stream_order.h"
#include "lmdbio/sync/over_device/value_places.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// Where an AllReduce may leave its result.
enum class ResultPlace : uint8_t {
  kInPlace,   // where the values are
  kAnywhere,  // at DeviceCollectives::ResultOf
};

// In the arena of a rank.
struct DeviceValues {
  uint64_t offset = 0;  // bytes; fast if those of all ranks have the same remainder modulo 16
  size_t count = 0;     // elements
  DataType type = DataType::kFloat32;
  ResultPlace result = ResultPlace::kInPlace;

  uint64_t size_bytes() const { return count * ElementBytes(type); }
};

// Collective over the roots of the hosts, which are in the order of the hosts.
using BetweenHostsMaker = std::function<Result<std::unique_ptr<BetweenHosts>>(ranks::Group& roots)>;

// All of them outlive the collectives.
struct DeviceCollectiveParts {
  device::Device& gpu;
  const kernels::DeviceKernels* kernels;  // null: this rank has none
  Collectives& meetings;                  // of the same ranks
  std::function<Status()> check;          // called in waits; an error ends them
  // Called in Make alone. Empty, alike on all ranks: those of several hosts cannot reduce on GPUs.
  BetweenHostsMaker make_between = nullptr;
};

// The same on every rank.
struct DeviceCollectiveOptions {
  uint64_t arena_bytes = 0;  // [> 0]
  OrderKind order = OrderKind::kHost;
  // The largest size of values that several GPUs of one host reduce in one shot; 0: none. With one
  // GPU, or several hosts, there is no such way.
  uint64_t one_shot_bytes = 0;
};

// Threads: one at a time, except Poison.
class DeviceCollectives {
 public:
  // Collective over `group`.
  // notes  gets a line for each thing that is not as wanted
  // Returns: null on every rank if they cannot reduce on GPUs; the notes say why
  // Errors: kResourceExhausted  no memory for the arena
  //         kInvalidArgument    the ranks have different options
  //         kPeerFailed         another rank failed; has its message
  //         and as ranks::Group::AllGather
  static Result<std::unique_ptr<DeviceCollectives>> Make(ranks::Group& group,
                                                         const DeviceCollectiveParts& parts,
                                                         const DeviceCollectiveOptions& options,
                                                         std::vector<std::string>& notes);
  // Without LeaveInPeace before, the memory stays until the process ends, unless no other rank has
  // mapped it.
  // Requires: all work on streams that uses the arena of a rank alone is done
  ~DeviceCollectives();
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  int host_count() const { return host_.host_count; }
  // The memory of this rank in which values are reduced.
  device::DeviceSpan arena() const { return {arena_.own().begin, arena_bytes_}; }
  // Where an AllReduce of these values leaves its result, until the next call.
  device::DeviceAddress ResultOf(const DeviceValues& values) const;

  // Collective. The values of every rank become the reduction of all of them; on one host with the
  // bits of Collectives::AllReduce. With several hosts those of each host are reduced first, and
  // the roots wait for each other's messages. Returns when this rank's work is enqueued on
  // `stream`: behind what is there already, and what follows there sees the result. It is void if a
  // rank fails before it is computed: ask StreamOrder::is_void when that work is done.
  // values     the same on every rank, except the offset and the place of the result
  // reduction  the same on every rank
  // stream  of `gpu`; its work follows that of the streams of all earlier calls
  // Returns: kDeclined  no arena has changed
  // Errors: kInvalidArgument  the values are not inside the arena, or the scale of integers is not
  //                           finite; the other ranks are not asked
  //         as Collectives, and those of `check`
  //         kInternal  the driver fails, by its own name for the reason
  //         After any other error the meetings are stopped and the order is poisoned, and only
  //         Poison and the destructor may be called.
  Result<CallOutcome> AllReduce(const CallTag& tag, const DeviceValues& values,
                                const Reduction& reduction, device::DeviceStream& stream);

  // Collective. Copies the values of rank `root` to all ranks, by copy engines and to the bit. The
  // rest as AllReduce.
  // root  [0 <= root < ranks; the same on every rank]
  // Requires: host_count() == 1
  // Errors: as AllReduce
  Result<CallOutcome> Broadcast(const CallTag& tag, const DeviceValues& values, int root,
                                device::DeviceStream& stream);

  // After a failure of any rank: no work on a stream waits for another rank any more, as far as the
  // order can do that. Threads: any
  void Poison() { order_->Poison(); }
  // The same, and ends the calls between hosts with this message.
  // Threads: any
  void Stop(const Error& why) {
    if (between_ != nullptr) between_->Stop(why);
    Poison();
  }

  // Tells whether a result that was enqueued has become void. Threads: any
  // Lifetime: may outlive the collectives
  const std::shared_ptr<StreamOrder>& order() const { return order_; }

  // Collective, after the last call: unmaps the memory of others, and meets them.
  // Requires: all work on streams that uses an arena is done
  // Errors: as Collectives::Barrier; kPeerFailed  another rank makes another call
  Status LeaveInPeace();

  // The way, the leaders and the order, as a line.
  std::string Description() const;

 private:
  // The ranks of the host, which share memory.
  struct PlaceOnHost {
    int rank = 0;  // of this rank on its host; 0: the root
    int size = 1;
    int host_count = 1;
  };
  // By ranks of the host.
  struct GpuRanks {
    std::vector<int> leaders;  // ascending; the lowest of each GPU
    std::vector<int> mine;     // ascending; those of this rank's GPU
  };
  // The results of one shot, behind the values in each arena.
  struct OneShot {
    uint64_t bytes_max = 0;  // 0: there is no such way
    uint64_t offset = 0;
  };

  DeviceCollectives(const DeviceCollectiveParts& parts, const PlaceOnHost& host, ValuePlaces places,
                    DeviceArena arena, std::unique_ptr<StreamOrder> order, GpuRanks gpus);

  // Work of some ranks that reads and writes the arenas of all.
  struct DeviceCall {
    CallTag tag;
    uint64_t offset = 0;           // of the values of this rank
    std::span<const int> workers;  // the ranks that enqueue and announce it
    std::function<Status()> enqueue;
    std::function<Status()> enqueue_between;  // of the root, with several hosts
    std::function<Status()> enqueue_last;     // of each rank, behind "done"; may be empty
  };

  // Errors: as AllReduce
  Status CheckValues(const DeviceValues& values) const;
  Result<CallOutcome> Run(const DeviceCall& call, device::DeviceStream& stream);
  Result<CallOutcome> RunSteps(const DeviceCall& call, device::DeviceStream& stream);
  // Meets the others, when all of this call up to here is enqueued.
  Status MeetEnqueued(uint64_t digest);
  // The part of the values that this rank reduces, if it is a leader.
  Status ReducePart(const DeviceValues& values, const Reduction& reduction,
                    device::DeviceStream& stream);
  // Of a root: replaces the sums of the host by those of all hosts, in the arenas of its host.
  Status ReduceBetween(const DeviceValues& values, const Reduction& reduction,
                       device::DeviceStream& stream);
  // The copies to all other ranks, if this rank is the root.
  Status SendValues(const DeviceValues& values, int root, device::DeviceStream& stream);
  bool IsOneShot(const DeviceValues& values) const {
    return values.count > 0 && values.size_bytes() <= one_shot_.bytes_max;
  }
  // Of a leader: all values, for the ranks of its GPU.
  Status ReduceForGpu(const DeviceValues& values, const Reduction& reduction,
                      device::DeviceStream& stream);
  Status AwaitAllReady(device::DeviceStream& stream);
  void CloseOthers();
  // The values of a rank of this host.
  device::DeviceAddress PlaceOf(int rank) const {
    return arena_.of(rank).begin + places_.OffsetOf(rank);
  }

  const DeviceCollectiveParts parts_;
  const PlaceOnHost host_;
  ValuePlaces places_;
  DeviceArena arena_;
  const std::shared_ptr<StreamOrder> order_;
  const GpuRanks gpus_;
  const std::vector<int> ranks_;  // all of the host
  uint64_t arena_bytes_ = 0;      // without the results of one shot
  OneShot one_shot_;
  std::unique_ptr<BetweenHosts> between_;  // of the root, if there are several hosts
  bool has_left_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_DEVICE_COLLECTIVES_H_
