// lmdbio/sync/over_nccl/nccl_collectives.h - ranks with a GPU each reduce by NCCL.
//
//   host    await the work on the stream | meet: compare tags | enqueue | meet: all is enqueued
//   stream                                 NCCL's kernel | scale
//
// NCCL adds in an order of its own, so the bits are those of no other way. They are the same on all
// ranks.
//
// Source: docs/device_nccl.md.
#ifndef LMDBIO_SYNC_OVER_NCCL_NCCL_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_NCCL_NCCL_COLLECTIVES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_device/arena_collectives.h"
#include "lmdbio/sync/over_nccl/nccl_comm.h"
#include "lmdbio/sync/over_nccl/nccl_table.h"

namespace lmdbio::sync {

// All of them outlive the collectives.
struct NcclParts {
  device::Device& gpu;
  const kernels::DeviceKernels* kernels;  // null: this rank has none
  Collectives& meetings;                  // of the same ranks
  std::function<Status()> check;          // called in waits; an error ends them
  // As NcclCommSetup::give_up.
  std::function<void(const Error& why)> give_up;
  const char* library = kNcclLibrary;
};

class NcclCollectives final : public ArenaCollectives {
 public:
  // Collective over `group`.
  // arena_bytes  [> 0; the same on every rank]
  // Errors, on every rank if on one:
  //   kNotFound, kUnsupported  as LoadNccl
  //   kUnsupported             two ranks share a GPU, or have other versions of NCCL; a rank has no
  //                            kernels for its GPU: names the ranks
  //   kResourceExhausted       no memory for the arena
  //   and as NcclComm::Make
  static Result<std::unique_ptr<NcclCollectives>> Make(ranks::Group& group, const NcclParts& parts,
                                                       uint64_t arena_bytes);
  // Without LeaveInPeace before, the communicator is aborted. The memory then stays until the
  // process ends, unless this rank is alone.
  ~NcclCollectives() override;
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  device::DeviceSpan arena() const override { return arena_.span(); }
  device::DeviceAddress ResultOf(const DeviceValues& values) const override {
    return arena().begin + values.offset;
  }
  Result<CallOutcome> AllReduce(const CallTag& tag, const DeviceValues& values,
                                const Reduction& reduction, device::DeviceStream& stream) override;
  bool has_broadcast() const override { return true; }
  Result<CallOutcome> Broadcast(const CallTag& tag, const DeviceValues& values, int root,
                                device::DeviceStream& stream) override;

  // Aborts the communicator, which ends NCCL's kernels.
  void Poison() override { comm_->Abort(); }
  void Stop(const Error&) override { Poison(); }
  Status Check() override { return comm_->Check(); }
  std::shared_ptr<const ResultState> result_state() const override { return comm_; }
  Status LeaveInPeace() override;
  std::string Description() const override;

 private:
  NcclCollectives(const NcclParts& parts, int version, device::DeviceMemory arena,
                  device::DeviceEvent ready, std::shared_ptr<NcclComm> comm)
      : parts_(parts),
        version_(version),
        arena_(std::move(arena)),
        ready_(std::move(ready)),
        comm_(std::move(comm)) {}

  // tag  of the call with its values
  Result<CallOutcome> Run(const CallTag& tag, const std::function<Status()>& enqueue,
                          device::DeviceStream& stream);
  Result<CallOutcome> RunSteps(const CallTag& tag, const std::function<Status()>& enqueue,
                               device::DeviceStream& stream);

  const NcclParts parts_;
  const int version_;  // of NCCL
  device::DeviceMemory arena_;
  device::DeviceEvent ready_;  // behind the work of the program
  const std::shared_ptr<NcclComm> comm_;
  bool has_left_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_NCCL_NCCL_COLLECTIVES_H_
