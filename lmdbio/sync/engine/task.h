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
#include "lmdbio/trace/timeline.h"

namespace lmdbio::sync {

class SubmissionQueue;

struct Handle::State {
  Submission submission;
  uint64_t number = 0;  // of this rank's submissions
  std::chrono::steady_clock::time_point since{};
  std::chrono::steady_clock::duration away_before{0};  // of the helper thread; see Engine
  std::weak_ptr<SubmissionQueue> queue;
  trace::TimelineTensor drawn;  // of the helper thread

  // The helper thread writes the rest before it sets is_done.
  std::atomic<bool> is_done{false};
  ranks::EventCount done;                  // notified after is_done is set
  std::atomic<bool> is_known_done{false};  // the program has seen is_done
  std::optional<Error> failure;
  std::vector<std::byte> result;
  std::vector<int64_t> result_rows;
  int32_t last_joined = -1;

  const std::string& name() const { return submission.request.name; }
  // Requires: is_done
  // Errors: the failure of the operation
  Status status() const;
  // Completes the operation, and calls its callback. Called once.
  void Finish(const Status& how);
  // Wakes the threads that wait for the operation. After Finish; the helper thread completes
  // several operations before it wakes any thread.
  void WakeWaiters() { done.Notify(); }
};

using Task = Handle::State;
using TaskPtr = std::shared_ptr<Task>;

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_TASK_H_
