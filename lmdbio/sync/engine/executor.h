// lmdbio/sync/engine/executor.h - executes responses: packs the tensors, calls the collectives, and
// unpacks the results.
//
// Source: dissertation 6.2.2 (fusion buffers); docs/sync.md "Fusion".
#ifndef LMDBIO_SYNC_ENGINE_EXECUTOR_H_
#define LMDBIO_SYNC_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/graph/plan_times.h"
#include "lmdbio/sync/on_device/sync_device.h"
#include "lmdbio/sync/request/gradient_places.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

struct ExecutorCounters {
  uint64_t collective_count = 0;
  uint64_t collective_bytes = 0;
  uint64_t collective_bytes_min = 0;  // of one call; 0: none yet
  uint64_t collective_bytes_max = 0;
};

// Threads: one at a time, except Place.
class Executor {
 public:
  // The fusion buffer and the memory for gradients are parts of collectives.registered() if that is
  // large enough. Otherwise the executor allocates them.
  // collectives, tracer  must outlive this
  // device  for tensors on a GPU, with a ring; must outlive this. Null: there are none
  Executor(Collectives& collectives, SyncTracer& tracer, uint64_t fusion_bytes,
           uint64_t gradient_bytes, SyncDevice* device = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective. Executes a response without an error. Writes the results, but does not complete the
  // tasks.
  // tasks  [tensors of the response] null: this rank has joined, and contributes zeros
  // Returns: kDeclined  no tensor has changed
  // Errors: as Collectives, and as StagingRing::Run and ArenaMover::Run
  Result<CallOutcome> Perform(const Response& response, std::span<Task* const> tasks, CallTag tag);

  // Collective. Executes a step of a plan. All steps of a bucket, in the order of the plan, do the
  // same as Perform, but the halves of a reduction may give other bits. In between, the outputs
  // hold parts of the result.
  // response, tasks  of the bucket of the step, as Perform
  // Returns: kDeclined  no tensor has changed, if the step begins the bucket. The ranks cannot
  //                     decline other steps
  // Errors: as Perform
  // Requires: as Plan::FromSteps; the tensors fit the fusion buffer if the step is half a reduction
  Result<CallOutcome> PerformStep(const Response& response, const PlanStep& step,
                                  std::span<Task* const> tasks, const CallTag& tag);

  // Collective. Joins the next call of the other ranks without data, so that all ranks skip it.
  // Returns: kDeclined
  // Errors: as Collectives
  Result<CallOutcome> Decline(uint64_t digest);

  // Hands out a part of the memory for gradients. Threads: any
  // Errors: as GradientPlaces::Take
  Result<MutableBytes> Place(uint64_t size_bytes);

  // Learns what each reduction on the host takes. Before the first call; must outlive this.
  void set_plan_times(PlanTimes* times) { plan_times_ = times; }

  uint64_t fusion_bytes() const { return fusion_bytes_; }
  const ExecutorCounters& counters() const { return counters_; }
  StagingCounters staging_counters() const {
    return device_ != nullptr ? device_->ring().counters() : StagingCounters();
  }
  ArenaCounters arena_counters() const {
    const bool has_arena = device_ != nullptr && device_->arena() != nullptr;
    return has_arena ? device_->arena()->counters() : ArenaCounters();
  }

 private:
  using Outcome = Result<CallOutcome>;
  using StepHalf = PlanStep::StepHalf;
  // Some elements of a tensor.
  struct ElementRange {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  // The tensors of a call on a GPU.
  struct StagedCall {
    std::span<const Request> requests;
    std::span<Task* const> tasks;
    TensorUse use;
    double prescale = 1;
    bool needs_zeros = true;
    // Of a call on the GPUs, which is under way when it returns; null: only copies to outputs are.
    std::shared_ptr<const ResultState> result_state = nullptr;
  };
  Outcome AllReduce(const Response& response, std::span<Task* const> tasks, CallTag tag);
  Outcome ReduceSlice(const Request& request, ElementRange range, StepHalf half, Task* task,
                      const CallTag& tag);
  Outcome ReduceFused(std::span<const Request> requests, StepHalf half,
                      std::span<Task* const> tasks, const CallTag& tag);
  Outcome ReduceOnDevice(std::span<const Request> requests, std::span<Task* const> tasks,
                         const CallTag& tag);
  Outcome Broadcast(const Request& request, Task* task, const CallTag& tag);
  Outcome BroadcastStaged(const Request& request, Task* task, const CallTag& tag);
  // input  of the task, on the host; null if the task is
  Outcome AllGather(const Response& response, Task* task, const std::byte* input,
                    const CallTag& tag);
  Outcome AllToAll(const Response& response, Task* task, const std::byte* input,
                   const CallTag& tag);
  Outcome ReduceScatter(const Request& request, Task* task, const std::byte* input,
                        const CallTag& tag);
  Outcome PerformWithResult(const Response& response, Task* task, const CallTag& tag);
  // Makes `call` for each chunk of the tensors.
  Outcome Stage(const StagedCall& staged, const ChunkCall& call);
  // Runs a mover with the tensors, in chunks of this size, and gives the tasks its event.
  template <typename Run>
  Outcome MoveTensors(const StagedCall& staged, uint64_t chunk_bytes, const Run& run);
  std::byte* ViewOf(std::span<const Request> requests, std::span<Task* const> tasks,
                    std::span<const uint64_t> offsets) const;
  // The offset in the arena of tensors that need not be packed.
  std::optional<uint64_t> OffsetInArena(const StagedCall& staged) const;
  // As Stage, for a call with values in the arena. Requires: there is one
  // result  where the call may leave that of tensors which are packed
  using ArenaValuesCall =
      std::function<Outcome(const DeviceValues& values, uint64_t chunk, device::DeviceStream&)>;
  Outcome CallInArena(StagedCall staged, ResultPlace result, const ArenaValuesCall& call);
  Outcome ReduceValues(const CallTag& tag, const Values& values, const Reduction& reduction,
                       StepHalf half, TransferStart start);
  MutableBytes FusionBuffer();
  template <typename Owner>
  void KeepIfWritten(Owner memory) const;
  // Makes one collective call for these tasks, and traces and counts it.
  template <typename Call>
  Outcome Transfer(std::span<Task* const> tasks, uint64_t bytes, Call call);

  Collectives& collectives_;
  SyncTracer& tracer_;
  SyncDevice* device_;
  PlanTimes* plan_times_ = nullptr;  // null: the ranks follow no plan by time
  uint64_t fusion_bytes_;
  MutableBytes fusion_;     // empty until the first use
  MutableBytes gradients_;  // [gradient_bytes]
  std::unique_ptr<std::byte[]> own_fusion_;
  std::unique_ptr<std::byte[]> own_gradients_;
  std::unique_ptr<GradientPlaces> places_;  // in gradients_
  ExecutorCounters counters_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_EXECUTOR_H_
