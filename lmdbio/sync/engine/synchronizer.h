// lmdbio/sync/engine/synchronizer.h - reduces, gathers and broadcasts tensors over all ranks.
//
// Threads of the program submit tensors by name, in any order. A helper thread for each
// Synchronizer agrees with the other ranks on an order and executes the operations. It sleeps while
// it has nothing to do. There is no global state: a process may have several objects, each over
// other ranks (Horovod calls that a process set).
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
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/pointer_cache.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/on_device/device_tensor.h"
#include "lmdbio/sync/over_library/blocking_library.h"
#include "lmdbio/sync/request/request.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// One operation on one tensor.
struct Submission {
  Request request;
  // [request.shape] borrowed until the operation is done. Null for kBarrier and kJoin, and for
  // kBroadcast on ranks other than the root.
  const std::byte* input = nullptr;
  // kAllReduce, kBroadcast: [as the input] written before the operation is done; may be the input.
  // Other operations: unused, because the handle has the result.
  std::byte* output = nullptr;
  // The tensor is on the GPU of SyncOptions::device, and `input` and `output` are not used. The
  // result of an operation without output is in memory of the host all the same, because its size
  // is not known before.
  std::optional<DeviceTensor> on_device = std::nullopt;
  // Called once in the helper thread, when the operation is done or has failed. The helper thread
  // does nothing else meanwhile, so the callback must not wait for another operation, and must not
  // throw. May be empty.
  std::function<void(const Status& status)> callback;
};

// An operation in progress.
// Threads:  any
// Lifetime: may outlive its synchronizer. If it is destroyed before the operation is done, the
//           operation continues
class Handle {
 public:
  struct State;
  explicit Handle(std::shared_ptr<State> state);
  Handle(Handle&&) noexcept;
  Handle& operator=(Handle&&) noexcept;
  ~Handle();

  // Whether the operation is done or has failed. Does not wait. After this returns true, later
  // submissions are treated as dependent on this operation, so a plan puts them in later buckets.
  bool is_done() const;

  // Waits, asleep, until the operation is done.
  // Errors: kInvalidArgument  ranks differ in shape, type or operation; names the tensor and the
  //                           request of each rank
  //         kPeerFailed       a rank has failed, has left, or has not submitted the tensor within
  //                           the limit; names the tensor, its number and the ranks. With the
  //                           collectives of MPI, MPI may still write to the output: keep its
  //                           memory until MPI_Finalize. A GPU may still read the input of a tensor
  //                           that was not ready: keep its memory until its stream is done
  //         kInternal         the GPU or its driver fails, by the driver's name for the reason
  Status Wait();
  // Waits at most for `limit`. Returns whether the operation is done.
  // Errors: as Wait
  Result<bool> WaitFor(std::chrono::milliseconds limit);
  // Work that is enqueued on `stream` after this sees the result. Of a tensor on a GPU the result
  // is then enqueued, and this does not wait until it is done. Of other tensors it is done.
  // stream  of the program, on the GPU of the tensor; null: the default stream
  // Errors: as Wait; kInvalidArgument  the stream is captured, or was destroyed
  Status WaitOn(device::StreamHandle stream);
  // Waits at most for `limit`. Returns whether work on `stream` sees the result.
  // Errors: as WaitOn
  Result<bool> WaitOnFor(device::StreamHandle stream, std::chrono::milliseconds limit);

  // The calls below require that the operation is done without an error.

  // kAllGather, kAllToAll, kReduceScatter: the result, owned by the handle.
  Bytes result() const&;
  Bytes result() && = delete;
  // [ranks] rows from each rank; kReduceScatter: [1] rows of this rank. Owned by the handle.
  const std::vector<int64_t>& result_rows() const&;
  const std::vector<int64_t>& result_rows() && = delete;
  // kJoin: the rank that joined last.
  int32_t last_joined() const;

 private:
  template <typename Rest>
  Result<bool> WaitAndTell(std::chrono::milliseconds limit, const Rest& rest);

  std::shared_ptr<State> state_;
};

// Counts since the creation of the synchronizer.
struct SyncCounters {                  // check-tree: large-class (a member for each counter)
  uint64_t cycle_count = 0;            // rounds, and buckets of plans
  uint64_t control_message_count = 0;  // exchanges of this rank
  uint64_t control_bytes = 0;          // contributed by this rank to exchanges
  uint64_t collective_count = 0;       // calls that moved data
  uint64_t collective_bytes = 0;
  uint64_t collective_bytes_min = 0;  // of one call; 0: none yet
  uint64_t collective_bytes_max = 0;
  uint64_t tensor_count = 0;         // operations of this rank that are done, or are enqueued
  uint64_t plan_count = 0;           // adopted plans, or learned groups of all tensors
  uint64_t plan_end_count = 0;       // abandoned plans, or groups
  uint64_t thread_cpu_ns = 0;        // processor time of the helper thread
  uint64_t thread_run_delay_ns = 0;  // time in which it could run but had no core
  uint64_t device_tensor_count = 0;  // tensors on a GPU whose values have passed the host
  uint64_t device_out_bytes = 0;     // copied from the GPU
  uint64_t device_in_bytes = 0;      // copied to the GPU
  uint64_t device_copy_count = 0;    // copies, and launches that pack or unpack several tensors
  uint64_t device_wait_ns = 0;  // time in which the helper thread waited for copies to the host
  // Tensors that the GPUs of the ranks have reduced, or copied between each other.
  uint64_t device_reduced_count = 0;
  uint64_t device_reduced_bytes = 0;  // of them, with the gaps between tensors of a bucket
};

// Makes collectives that check `health` whenever they wait. In these checks the synchronizer
// detects failures and stalls. Collective.
// health  outlives the collectives
using CollectivesMaker = std::function<Result<std::unique_ptr<Collectives>>(ranks::Health& health)>;

// Parts that the caller can provide. All ranks provide the same ones, except the last two.
struct SyncParts {
  std::unique_ptr<ranks::Health> health;  // null: over shared memory and links between hosts
  std::unique_ptr<Transport> transport;   // null: over shared memory and links between hosts
  CollectivesMaker collectives;           // empty: by the options, without MPI
  std::shared_ptr<BlockingLibrary> device_library;  // of device_collective "mpi"
  std::string device_note;  // a line of Description, if tensors on a GPU are taken; "": none
  // How answers about memory of a GPU are remembered. May differ between ranks. For comparisons.
  device::CacheCheck pointer_check = device::CacheCheck::kBufferId;
  // Receives notes and stall reports, in the helper thread; may be empty.
  std::function<void(const std::string& line)> log;
};

// Threads: any, except Create and the destructor.
class Synchronizer {
 public:
  // Collective over `group`. With a group of MPI, in the thread that may call MPI.
  // group    must outlive the synchronizer
  // options  the same on every rank, except those that may differ
  // Errors: kInvalidArgument    an invalid option, or one that differs from rank 0; names it
  //         kUnsupported        a collective that is not available here; the driver is too old
  //         kNotFound           no driver of a GPU, no such GPU, or no NCCL
  //         kResourceExhausted  no shared memory, no thread, no memory of the GPU, or the host
  //                             refuses to pin memory
  //         kPeerFailed         another rank had one of these errors
  static Result<std::unique_ptr<Synchronizer>> Create(ranks::Group& group,
                                                      const SyncOptions& options, SyncParts parts);

  // Ends the helper thread. Operations in progress fail, here and on the other ranks. Call Shutdown
  // first to let all ranks finish.
  ~Synchronizer();

  int rank() const;
  int size() const;

  // Submits one operation.
  // Names that begin with "lmdbio." are reserved. The name of a kJoin is ignored.
  // Errors: kInvalidArgument  an operation of this name is in progress; an invalid name, type,
  //                           reduction, shape, root or split; a scale of an integer type that is
  //                           infinite or NaN; a missing buffer; after Shutdown; a tensor on a GPU
  //                           without the option device, or not in the memory of that GPU, or with
  //                           a stream that is captured or of another GPU; a tensor of the host
  //                           that is on a GPU. Nothing was submitted
  //         kPeerFailed       as Handle::Wait, if the synchronizer has already failed
  Result<Handle> Submit(Submission submission);

  // Submits several kAllReduce as one tensor group: they become ready together and are reduced
  // together.
  // Errors: as Submit; then none of them was submitted
  Result<std::vector<Handle>> SubmitGroup(std::vector<Submission> submissions);

  // The memory behind a pointer, which may be passed in Submission::on_device if it is kDevice.
  // Without SyncOptions::device all memory is kHost, and no driver is asked.
  // Errors: kInternal  the driver fails
  Result<MemoryKind> MemoryOf(const void* pointer) const;

  // Follows a plan made from this graph, instead of a learned plan. With the same graph the same
  // values give the same bits, from the first submission on; between hosts, where a trial chooses
  // algorithms, with SyncOptions::reproducible. The shape of a kAllGather is the shape
  // that every rank contributes. If the graphs of the ranks differ, there is a note and no plan.
  // Collective, before the first submission: waits until all ranks have called it.
  // Errors: kInvalidArgument  as OrderTensors; the graph contains a kAllToAll, kJoin or kAdoptPlan,
  //                           which no plan can hold; the coordinator is not "topo"; an operation
  //                           was submitted before
  //         kPeerFailed       as Handle::Wait
  Status SetGraph(const Graph& graph);

  // Hands out a part of the memory of SyncOptions::gradient_bytes. It is filled with zeros and
  // begins at a multiple of 64 bytes.
  // Tensors that lie there in the order of the plan, and are reduced in place, are not packed.
  // Ranks of a host reduce them in each other's memory. If a part holds several tensors, each
  // except the last must fill its 64-byte lines; otherwise they are packed.
  // Every rank requests the same sizes in the same order.
  // Errors: kResourceExhausted  not enough of gradient_bytes is left
  // Lifetime: as the synchronizer
  Result<MutableBytes> Place(uint64_t size_bytes);

  // Hands out a part of the memory of SyncOptions::device_gradient_bytes, on the GPU. It is filled
  // with zeros and begins at a multiple of 64 bytes.
  // If the GPUs of the ranks reduce, tensors that lie there in the order of the plan, and are
  // reduced in place without a prescale, are not packed; gaps as those of Place. Without GPUs that
  // reduce it is memory as any other.
  // Errors: kInvalidArgument    without SyncOptions::device
  //         kResourceExhausted  not enough of device_gradient_bytes is left
  // Lifetime: as the synchronizer. Work of the program that uses it is done before. After a failure
  //           other GPUs may still write there
  Result<device::DeviceSpan> PlaceOnDevice(uint64_t size_bytes);

  // Collective. Waits until all ranks have called it and all operations are done. Later submissions
  // fail.
  // Errors: kPeerFailed  as Handle::Wait
  Status Shutdown();

  SyncCounters counters() const;
  // The coordinator, the pacing, the collectives by size and the cores in use, as lines of text.
  std::vector<std::string> Description() const;
  // The last events of this rank, oldest first, one line each, for an error report.
  std::vector<std::string> FlightRecord() const;

 private:
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A kAllReduce of `count` elements; in place if `input` is `output`.
Submission AllReduceOf(std::string name, const void* input, void* output, int64_t count,
                       DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNCHRONIZER_H_
