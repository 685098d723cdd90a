// lmdbio/sync/engine/submission_queue.h - passes submissions and waits from the threads of the
// program to the helper thread.
//
// The helper thread needs the waits only while it learns a plan: a tensor that is submitted after a
// wait may depend on the tensor that the program has waited for.
#ifndef LMDBIO_SYNC_ENGINE_SUBMISSION_QUEUE_H_
#define LMDBIO_SYNC_ENGINE_SUBMISSION_QUEUE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/sync/schedule/program_clock.h"

namespace lmdbio::sync {

// A submission, or the end of a wait, of a thread of the program.
struct ProgramEvent {
  TaskPtr submitted;       // null: a wait
  std::string waited;      // the name of the tensor
  int64_t program_ns = 0;  // by the program clock: of the submission, or the begin of the wait
};

// The begin of a wait.
struct WaitBegin {
  int64_t steady_ns = 0;
  int64_t program_ns = 0;  // by the program clock
};

// Threads: any.
// Lifetime: as long as the synchronizer or one of its handles
class SubmissionQueue {
 public:
  // wake  called by any thread when Take has enough events to return
  explicit SubmissionQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Marks the callback of an operation in the present thread, as long as the object lives. A
  // submission in the callback counts as one after a wait for the operation.
  class CalledBack {
   public:
    CalledBack(const SubmissionQueue& queue, const std::string& name);
    ~CalledBack();
    CalledBack(const CalledBack&) = delete;
    CalledBack& operator=(const CalledBack&) = delete;

   private:
    friend class SubmissionQueue;
    const SubmissionQueue& queue_;
    const std::string& name_;
  };

  // Adds tasks, all or none.
  // Errors: kInvalidArgument  a task of that name is in progress, or occurs twice in `tasks`
  //         the error of Close
  Status Submit(const std::vector<TaskPtr>& tasks);

  // A thread of the program begins to wait for an operation, or ends it.
  WaitBegin BeginWait();
  // name   of the operation; "" if the thread has only queried it, and it was not done
  // begin  of the wait; in the same thread
  enum class Got : uint8_t { kNothing, kResult };
  void EndWait(const std::string& name, Got got, const WaitBegin& begin);
  // A query of a thread of the program has returned that an operation is done.
  // Cost: none with Waits::kNotTold
  void TellWaited(const std::string& name);
  bool is_waited_for() const { return waiting_count_.load() > 0; }
  // Also called at the end of each wait, in the waiting thread, until Close. Before the first wait.
  using OnWait = std::function<void(const std::string& name, int64_t began_ns)>;
  void set_on_wait(OnWait on_wait) { on_wait_ = std::move(on_wait); }

  // Whether waits become events.
  enum class Waits : uint8_t { kNotTold, kTold };
  void SetWaits(Waits waits) { tells_waits_.store(waits == Waits::kTold); }

  // The queue calls `wake` when it has this many events, or when a thread begins to wait.
  void SetWakeCount(size_t event_count);
  std::vector<ProgramEvent> Take();
  bool is_empty();

  // The operations are done, so their names can be used again.
  void Release(std::span<const Request> requests);

  // Waits until no operation is in progress.
  // Errors: the error of Close
  Status AwaitAllDone();

  // Refuses all later submissions with this error. Returns the events that were not taken.
  std::vector<ProgramEvent> Close(const Error& why);
  // After Close: no work under way uses tensors any more, or nothing more can be waited for.
  void End();
  // Errors: the error of Close, after End
  Status CheckGoingOn();

 private:
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::function<void()> wake_;  // empty after Close
  OnWait on_wait_;              // may be empty; is after Close
  ProgramClock clock_;
  std::vector<ProgramEvent> events_;
  std::unordered_set<std::string> names_;  // of operations in progress
  size_t wake_count_ = 1;
  uint64_t number_ = 0;
  ErrorCode closed_code_ = ErrorCode::kInternal;
  std::string closed_words_;
  bool has_ended_ = false;
  std::atomic<int> waiting_count_{0};
  std::atomic<bool> tells_waits_{false};
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SUBMISSION_QUEUE_H_
