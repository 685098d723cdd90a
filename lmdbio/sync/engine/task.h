// lmdbio/sync/engine/task.h - one operation under way: what the handle of a caller and the helper
// thread share.
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
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/trace/timeline.h"

namespace lmdbio::sync {

class SubmissionQueue;

struct Handle::State {
  Submission submission;
  uint64_t number = 0;  // of this rank's submissions
  std::chrono::steady_clock::time_point since{};
  std::chrono::steady_clock::duration away_before{0};  // of the helper thread, see Engine
  std::weak_ptr<SubmissionQueue> queue;
  trace::TimelineTensor drawn;  // of the helper thread

  // The rest is written by the helper thread before is_done says so.
  std::atomic<uint32_t> is_done{0};
  std::atomic<uint32_t> waiter_count{0};
  std::atomic<bool> is_known_done{false};  // the program has asked, and heard so
  std::optional<Error> failure;
  std::vector<std::byte> result;
  std::vector<int64_t> result_rows;
  int32_t last_joined = -1;

  const std::string& name() const { return submission.request.name; }
  // Requires: is_done
  // Errors: why it has failed
  Status status() const;
  // Ends it, and calls back. Once.
  void Finish(const Status& how);
  // After Finish; with several, after that of the last.
  void WakeWaiters();
};

using Task = Handle::State;
using TaskPtr = std::shared_ptr<Task>;

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_TASK_H_
