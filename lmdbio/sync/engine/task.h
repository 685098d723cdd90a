// lmdbio/sync/engine/task.h - the state of one operation, shared by the caller's handle and the
// helper thread.
#ifndef LMDBIO_SYNC_ENGINE_TASK_H_
#define LMDBIO_SYNC_ENGINE_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/shm/event_count.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/over_device/result_state.h"
#include "lmdbio/trace/timeline.h"

namespace lmdbio::sync {

class SubmissionQueue;

// The output of an operation on a GPU.
struct EnqueuedOutput {
  EventPtr is_in;  // it is written behind this; null: it is
  // Of the streams of other ranks that it depends on; null: it depends on none any more.
  std::shared_ptr<const ResultState> result_state;
};

struct Handle::State {
  Submission submission;
  uint64_t number = 0;  // of this rank's submissions
  std::chrono::steady_clock::time_point since{};
  std::chrono::steady_clock::duration away_before{0};  // of the helper thread; see Engine
  std::weak_ptr<SubmissionQueue> queue;
  trace::TimelineTensor drawn;  // of the helper thread
  EventPtr ready;               // of a tensor on a GPU: behind it the input can be used; else null

  // The helper thread writes the rest before it sets is_done.
  std::atomic<bool> is_done{false};
  ranks::EventCount done;                  // notified after is_done is set
  std::atomic<bool> is_known_done{false};  // the program has seen is_done
  std::optional<Error> failure;
  std::vector<std::byte> result;
  std::vector<int64_t> result_rows;
  int32_t last_joined = -1;
  EnqueuedOutput output;

  const std::string& name() const { return submission.request.name; }
  // Whether the stream of a tensor on a GPU is done with it. True if the driver fails, which other
  // calls tell.
  bool is_ready() const;
  // Whether the operation is over, on the GPU, too. An operation that has failed is over.
  bool is_over() const;
  // Requires: is_done
  // Errors: the failure of the operation, or of the GPU; that of a rank after which the output is
  //         void
  Status status() const;
  // Whether other ranks still work on the output.
  // Errors: the failure of a rank. Then nothing of this rank uses the tensor any more, or a stream
  //         waits for ever.
  Status CheckOthers() const;
  // Completes the operation, and calls its callback. Called once.
  void Finish(const Status& how);
  // Wakes the threads that wait for the operation. After Finish; the helper thread completes
  // several operations before it wakes any thread.
  void WakeWaiters() { done.Notify(); }
};

// A rank has failed before the GPUs had reduced this tensor: kPeerFailed.
Error VoidSumError(const std::string& tensor);

using Task = Handle::State;
using TaskPtr = std::shared_ptr<Task>;

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_TASK_H_
