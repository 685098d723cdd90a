// lmdbio/sync/over_library/library_collectives.h - ranks reduce on their GPUs by a library whose
// calls block.
//
//   host    await the work on the stream | meet: compare tags | the library's call, awaited
//   stream                                                                           | scale
//
// The bits are those of the library. Ranks may share a GPU if the library lets them.
//
// Source: docs/device_mpi.md.
#ifndef LMDBIO_SYNC_OVER_LIBRARY_LIBRARY_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_LIBRARY_LIBRARY_COLLECTIVES_H_

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
#include "lmdbio/sync/over_library/blocking_library.h"
#include "lmdbio/sync/over_library/call_thread.h"

namespace lmdbio::sync {

// All of them outlive the collectives.
struct LibraryParts {
  device::Device& gpu;
  const kernels::DeviceKernels* kernels;  // null: this rank has none
  Collectives& meetings;                  // of the same ranks
  std::function<Status()> check;          // called in waits; an error ends them
  std::shared_ptr<BlockingLibrary> library;
};

class LibraryCollectives final : public ArenaCollectives {
 public:
  // Collective over `group`.
  // arena_bytes  [> 0; the same on every rank]
  // Errors, on every rank if on one:
  //   kUnsupported        a rank has no kernels for its GPU; names it
  //   kResourceExhausted  no memory for the arena
  static Result<std::unique_ptr<LibraryCollectives>> Make(ranks::Group& group,
                                                          const LibraryParts& parts,
                                                          uint64_t arena_bytes);
  // Without LeaveInPeace before, the memory and the library stay until the process ends, unless
  // this rank is alone.
  ~LibraryCollectives() override;
  LibraryCollectives(const LibraryCollectives&) = delete;
  LibraryCollectives& operator=(const LibraryCollectives&) = delete;

  device::DeviceSpan arena() const override { return arena_.span(); }
  device::DeviceAddress ResultOf(const DeviceValues& values) const override {
    return arena().begin + values.offset;
  }
  bool Reduces(DataType type, ReduceOp op) const override {
    return parts_.library->Reduces(type, op);
  }
  Result<CallOutcome> AllReduce(const CallTag& tag, const DeviceValues& values,
                                const Reduction& reduction, device::DeviceStream& stream) override;
  bool has_broadcast() const override { return true; }
  Result<CallOutcome> Broadcast(const CallTag& tag, const DeviceValues& values, int root,
                                device::DeviceStream& stream) override;

  // No work on a stream waits for another rank.
  void Poison() override {}
  void Stop(const Error&) override {}
  std::shared_ptr<const ResultState> result_state() const override;
  Status LeaveInPeace() override;
  std::string Description() const override;

 private:
  LibraryCollectives(const LibraryParts& parts, bool is_one_host, device::DeviceMemory arena,
                     device::DeviceEvent ready)
      : parts_(parts),
        is_one_host_(is_one_host),
        arena_(std::move(arena)),
        ready_(std::move(ready)) {}

  using LibraryCall = std::function<Status(BlockingLibrary& library)>;
  // tag  of the call with its values
  // call  owns all that it uses; empty: there are no values
  Result<CallOutcome> Run(const CallTag& tag, LibraryCall call, device::DeviceStream& stream);
  Result<CallOutcome> RunSteps(const CallTag& tag, LibraryCall call, device::DeviceStream& stream);
  Status CallLibrary(LibraryCall call);
  // For other ranks, which may wait for this one. Returns `why`.
  Error GiveUp(Error why);

  const LibraryParts parts_;
  const bool is_one_host_;
  device::DeviceMemory arena_;
  device::DeviceEvent ready_;  // behind the work of the program
  CallThread thread_;
  bool has_left_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_LIBRARY_LIBRARY_COLLECTIVES_H_
