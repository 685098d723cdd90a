// lmdbio/sync/engine/submission_queue.h - from the program's threads to the helper thread.
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

namespace lmdbio::sync {

// Something that a program's thread has done.
struct ProgramEvent {
  TaskPtr submitted;   // null: it has waited for a tensor
  std::string waited;  // whose name this is
};

// Threads: any. Outlives the synchronizer as long as there are handles.
class SubmissionQueue {
 public:
  // wake  called, by any thread, when there is something to take
  explicit SubmissionQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  // While it lives, this thread is in the callback of an operation: what it submits there depends
  // on that, as after a wait.
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
  // Errors: kInvalidArgument  a tensor of that name is under way, here or twice among these
  //         as it was closed with
  Status Submit(const std::vector<TaskPtr>& tasks);

  // A thread of the program waits for an operation, or does not any more.
  void BeginWait();
  // name      of what it has waited for; "" if it has only looked, and got nothing
  // began_ns  by the steady clock
  enum class Got : uint8_t { kNothing, kResult };
  void EndWait(const std::string& name, Got got, int64_t began_ns);
  // A thread of the program knows that an operation is done, without having waited.
  // Cost: none where waits are not told
  void TellWaited(const std::string& name);
  bool is_waited_for() const { return waiting_count_.load() > 0; }
  // Who else hears of waits, in the waiting thread, until Close. Before any thread waits.
  using OnWait = std::function<void(const std::string& name, int64_t began_ns)>;
  void set_on_wait(OnWait on_wait) { on_wait_ = std::move(on_wait); }

  // Whether waits are told at all.
  enum class Waits : uint8_t { kNotTold, kTold };
  void SetWaits(Waits waits) { tells_waits_.store(waits == Waits::kTold); }

  // The helper thread needs not wake before so many events are there.
  void SetWakeCount(size_t event_count);
  std::vector<ProgramEvent> Take();
  bool is_empty();

  // The names of operations may be used again.
  void Release(std::span<const sync::Request> requests);

  // Waits until no operation is under way.
  // Errors: as it was closed with
  Status AwaitAllDone();

  // From now on nothing can be submitted, for this reason. Returns what was not taken.
  std::vector<ProgramEvent> Close(const Error& why);

 private:
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::function<void()> wake_;  // empty after Close
  OnWait on_wait_;              // may be empty; is after Close
  std::vector<ProgramEvent> events_;
  std::unordered_set<std::string> names_;  // under way
  size_t wake_count_ = 1;
  uint64_t number_ = 0;
  ErrorCode closed_code_ = ErrorCode::kInternal;
  std::string closed_words_;
  std::atomic<int> waiting_count_{0};
  std::atomic<bool> tells_waits_{false};
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SUBMISSION_QUEUE_H_
