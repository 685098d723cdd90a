// lmdbio/sync/engine/executor.h - does what the ranks have agreed upon: packs, moves, unpacks.
//
// Source: dissertation 6.2.2 (fusion buffers); docs/sync.md "Fusion".
#ifndef LMDBIO_SYNC_ENGINE_EXECUTOR_H_
#define LMDBIO_SYNC_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

struct ExecutorCounters {
  uint64_t collective_count = 0;
  uint64_t collective_bytes = 0;
  uint64_t collective_bytes_min = 0;  // of one; 0: none yet
  uint64_t collective_bytes_max = 0;
};

// Threads: one at a time.
class Executor {
 public:
  // Takes the memory of fusion buffers and gradients from collectives.registered() where it is
  // large enough, else makes it.
  // collectives, witness  must outlive this
  Executor(sync::Collectives& collectives, SyncTracer& witness, uint64_t fusion_bytes,
           uint64_t gradient_bytes);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective. Does what a response without an error says; writes results, but does not end
  // tasks.
  // tasks  [tensors of the response] null where this rank has joined: it brings zeros
  // Returns: kDeclined  nothing has been written
  // Errors: as Collectives
  Result<sync::CallOutcome> Perform(const sync::Response& response, std::span<Task* const> tasks,
                                    sync::CallTag tag);

  // Collective. Comes to the call that the others make, without data.
  // Returns: kDeclined. Errors: as Collectives
  Result<sync::CallOutcome> Decline(uint64_t digest);

  // Synchronizer::PlanPosition. Threads: any one
  MutableBytes gradients() const { return gradients_; }
  // A part of gradients() was given out: what lies behind it, up to a multiple of 64 bytes, is
  // nobody's. Threads: any
  void AddPlace(MutableBytes place);

  uint64_t fusion_bytes() const { return fusion_bytes_; }
  const ExecutorCounters& counters() const { return counters_; }

 private:
  using Outcome = Result<sync::CallOutcome>;
  Outcome AllReduce(const sync::Response& response, std::span<Task* const> tasks,
                    sync::CallTag tag);
  Outcome ReduceAlone(const sync::Request& request, Task* task, const sync::CallTag& tag);
  Outcome ReduceFused(std::span<const sync::Request> requests, std::span<Task* const> tasks,
                      const sync::CallTag& tag);
  Outcome Broadcast(const sync::Request& request, Task* task, const sync::CallTag& tag);
  Outcome AllGather(const sync::Response& response, Task* task, const sync::CallTag& tag);
  Outcome AllToAll(const sync::Response& response, Task* task, const sync::CallTag& tag);
  Outcome ReduceScatter(const sync::Request& request, Task* task, const sync::CallTag& tag);
  std::byte* ViewOf(std::span<const sync::Request> requests, std::span<Task* const> tasks,
                    std::span<const uint64_t> offsets) const;
  bool is_end_of_place(const std::byte* end) const;
  MutableBytes FusionBuffer();
  template <typename Owner>
  void KeepIfWritten(Owner memory) const;
  // One collective call of these tasks, witnessed and counted.
  template <typename Call>
  Outcome Transfer(std::span<Task* const> tasks, uint64_t bytes, Call call);

  sync::Collectives& collectives_;
  SyncTracer& witness_;
  uint64_t fusion_bytes_;
  MutableBytes fusion_;     // empty until it is needed first
  MutableBytes gradients_;  // [gradient_bytes]
  std::unique_ptr<std::byte[]> own_fusion_;
  std::unique_ptr<std::byte[]> own_gradients_;
  ExecutorCounters counters_;
  mutable std::mutex places_mutex_;
  std::unordered_set<const std::byte*> place_ends_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_EXECUTOR_H_
