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
#include "lmdbio/sync/over_device/arena_collectives.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_device/device_arena.h"
#include "lmdbio/sync/over_device/stream_order.h"
#include "lmdbio/sync/over_device/value_places.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

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

class DeviceCollectives final : public ArenaCollectives {
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
  ~DeviceCollectives() override;
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  int host_count() const { return host_.host_count; }
  device::DeviceSpan arena() const override { return {arena_.own().begin, arena_bytes_}; }
  device::DeviceAddress ResultOf(const DeviceValues& values) const override;

  // On one host with the bits of Collectives::AllReduce. With several hosts those of each host are
  // reduced first, and the roots wait for each other's messages.
  Result<CallOutcome> AllReduce(const CallTag& tag, const DeviceValues& values,
                                const Reduction& reduction, device::DeviceStream& stream) override;

  bool has_broadcast() const override { return host_.host_count == 1; }
  // By copy engines.
  Result<CallOutcome> Broadcast(const CallTag& tag, const DeviceValues& values, int root,
                                device::DeviceStream& stream) override;

  void Poison() override { order_->Poison(); }
  void Stop(const Error& why) override {
    if (between_ != nullptr) between_->Stop(why);
    Poison();
  }
  std::shared_ptr<const ResultState> result_state() const override { return order_; }

  // Unmaps the memory of others.
  Status LeaveInPeace() override;

  // The way, the leaders and the order, as a line.
  std::string Description() const override;

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
