// lmdbio/sync/engine/synchronizer.h - tensors of all ranks in, the same tensors on all ranks out.
//
// One helper thread for each object, asleep until there is something to do, reduces what the
// program's threads submit, in any order and from any thread. No globals: a process may have
// several, each over ranks of its own (a process set).
//
//   LMDBIO_TRY(auto synchronizer, Synchronizer::Create(*group, options, {}));
//   LMDBIO_TRY(Handle handle, synchronizer->Submit(AllReduceOf("conv1", gradient, gradient, n)));
//   LMDBIO_TRY_VOID(handle.Wait());
//
// Source: dissertation 6.2.2, 6.3; docs/sync.md.
#ifndef LMDBIO_SYNC_ENGINE_SYNCHRONIZER_H_
#define LMDBIO_SYNC_ENGINE_SYNCHRONIZER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/request/request.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// One tensor to be worked on.
struct Submission {
  sync::Request request;
  // [what request.shape says] read until the operation is done; null for kBarrier and kJoin, and
  // for kBroadcast on other ranks than the root
  const std::byte* input = nullptr;
  // kAllReduce, kBroadcast: [as the input] written before the operation is done; may be the input.
  // Others: unused, the handle has the result.
  std::byte* output = nullptr;
  // Called once, when the operation is done or has failed. In the helper thread, which does nothing
  // else meanwhile: it must neither wait for another operation nor throw. May be empty.
  std::function<void(const Status& status)> callback;
};

// An operation under way.
// Threads: any. Lifetime: may outlive its synchronizer. May be destroyed before the operation is
// done; the operation goes on.
class Handle {
 public:
  struct State;
  explicit Handle(std::shared_ptr<State> state);
  Handle(Handle&&) noexcept;
  Handle& operator=(Handle&&) noexcept;
  ~Handle();

  // Whether it is done or has failed. Never waits. To hear that it is counts as a wait for it: a
  // plan does not let what is submitted afterwards travel with it.
  bool is_done() const;

  // Waits, asleep, until it is done.
  // Errors: kInvalidArgument  ranks differ in shape, type or operation; names the tensor, and who
  //                           asked for what
  //         kPeerFailed       a rank has failed, left, or not submitted the tensor within the
  //                           limit; names the tensor, its number and the ranks. Where MPI's own
  //                           collectives are used, MPI may still write to the output: it is to
  //                           stay until MPI_Finalize
  Status Wait();
  // The same, but at most so long: false if it is not done then.
  Result<bool> WaitFor(std::chrono::milliseconds limit);

  // Requires: done, without an error.
  Bytes result() const;  // kAllGather, kAllToAll, kReduceScatter: owned by the
                         // handle
  const std::vector<int64_t>& result_rows() const;  // [ranks] rows that came from each rank; of
                                                    // kReduceScatter: [1] rows of this one
  int32_t last_joined() const;                      // kJoin: the rank that joined last

 private:
  std::shared_ptr<State> state_;
};

// Counts since the synchronizer was made.
struct SyncCounters {
  uint64_t cycle_count = 0;            // rounds of control exchanges, and buckets of plans
  uint64_t control_message_count = 0;  // exchanges of this rank
  uint64_t control_bytes = 0;          // that this rank brought to them
  uint64_t collective_count = 0;       // calls that moved data
  uint64_t collective_bytes = 0;
  uint64_t collective_bytes_min = 0;  // of one call; 0: none yet
  uint64_t collective_bytes_max = 0;
  uint64_t tensor_count = 0;         // done
  uint64_t plan_count = 0;           // plans that were adopted
  uint64_t plan_end_count = 0;       // and those that did not fit any more
  uint64_t thread_cpu_ns = 0;        // of the helper thread
  uint64_t thread_run_delay_ns = 0;  // for which it could run and had no core
};

// Makes collectives that look at `health`, which outlives them, whenever they wait: through it the
// synchronizer hears of failures and finds what has stalled. Collective.
using CollectivesMaker =
    std::function<Result<std::unique_ptr<sync::Collectives>>(ranks::Health& health)>;

// What Create does not make itself. Every rank gives the same kinds of them, but for `log`.
struct SyncParts {
  std::unique_ptr<ranks::Health> health;  // null: by shared memory of hosts, and links between them
  std::unique_ptr<Transport> transport;   // null: by shared memory and links
  CollectivesMaker collectives;           // empty: as the options say, without MPI
  std::function<void(const std::string& line)>
      log;  // notes and stall reports; may be empty. Called
            // in the helper thread
};

// Threads: any, but Create and the destructor.
class Synchronizer {
 public:
  // Collective over `group`, in the thread that may call MPI where the group is MPI's.
  // group    must outlive the synchronizer
  // options  the same on every rank, but for those that say otherwise
  // Errors: kInvalidArgument    an option, or one that differs from rank 0's: has both
  //         kUnsupported        a collective that cannot be had here
  //         kResourceExhausted  no shared memory, no thread
  //         kPeerFailed         another rank had one of these
  static Result<std::unique_ptr<Synchronizer>> Create(ranks::Group& group,
                                                      const SyncOptions& options, SyncParts parts);

  // Ends the helper thread. What is under way fails, here and on the other ranks. Call Shutdown
  // first where everybody is to finish.
  ~Synchronizer();

  int rank() const;
  int size() const;

  // Asks for one operation.
  // Names that begin with "lmdbio." are the synchronizer's own. A kJoin has one
  // of them, whatever it is given.
  // Errors: kInvalidArgument  a tensor of this name is under way; a name, shape, root or split that
  //                           cannot be. Nothing has been submitted
  //         kPeerFailed       as Handle::Wait, when the synchronizer has failed already
  Result<Handle> Submit(Submission submission);

  // Asks for several kAllReduce that become ready together and travel together.
  // Errors: as Submit; then none has been submitted
  Result<std::vector<Handle>> SubmitGroup(std::vector<Submission> submissions);

  // The plan to follow from now on, in place of one from the first iteration; with the same graph
  // the same values give the same bits from the first submission on. Of a kAllGather the shape is
  // what every rank brings. Where the ranks' graphs differ there is a note, and no plan.
  // Collective, before the first submission: waits until all ranks have called it.
  // Errors: kInvalidArgument  as sync::OrderTensors; a kAllToAll, kJoin or kAdoptPlan, which no
  //                           plan can hold, names the tensor; the coordinator is not "topo";
  //                           something has been submitted already
  //         kPeerFailed       as Handle::Wait
  Status SetGraph(const sync::Graph& graph);

  // Memory for gradients, zero-filled and at a multiple of 64 bytes, of
  // SyncOptions::gradient_bytes.
  // Several tensors in one place are packed unless each but the last fills its 64-byte lines.
  // Tensors that are reduced in place there need no copy: those of one bucket, in the order of the
  // plan, need not be packed, and where the ranks of a host share it they look into each other's.
  // Every rank asks for the same sizes in the same order.
  // Errors: kResourceExhausted  there is not so much left
  // Lifetime: as the synchronizer
  Result<MutableBytes> Place(uint64_t size_bytes);

  // Collective. Waits until all ranks have called it and everything submitted is done; nothing can
  // be submitted afterwards.
  // Errors: kPeerFailed
  Status Shutdown();

  SyncCounters counters() const;
  // What was chosen, in lines: coordinator, pacing, collectives by size, cores.
  std::vector<std::string> Description() const;
  // The last operations of this rank, oldest first, a line each: for a report of what went wrong.
  std::vector<std::string> FlightRecord() const;

 private:
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A submission of `count` elements, reduced in place where input is output.
Submission AllReduceOf(std::string name, const void* input, void* output, int64_t count,
                       sync::DataType type = sync::DataType::kFloat32,
                       sync::ReduceOp op = sync::ReduceOp::kSum);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNCHRONIZER_H_
