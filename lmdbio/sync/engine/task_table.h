// lmdbio/sync/engine/task_table.h - the operations in progress on this rank, and their completion.
//
// The helper thread adds each submitted task, finds it by name when the ranks have agreed on its
// tensor, and completes it: it counts the task, releases the name, runs the callback, and wakes the
// threads that wait.
#ifndef LMDBIO_SYNC_ENGINE_TASK_TABLE_H_
#define LMDBIO_SYNC_ENGINE_TASK_TABLE_H_

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/engine/counter_publisher.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Threads: the helper thread.
class TaskTable {
 public:
  using Tasks = std::unordered_map<std::string, TaskPtr>;  // by name

  // The references must outlive this.
  TaskTable(SubmissionQueue& queue, SyncTracer& tracer, CounterPublisher& counters)
      : queue_(queue), tracer_(tracer), counters_(counters) {}

  // Requires: no task of this name is in progress; SubmissionQueue::Submit ensures it
  void Add(TaskPtr task);
  const Tasks& tasks() const { return tasks_; }
  // [tensors] null: this rank has joined, and has not submitted the tensor.
  std::vector<Task*> Find(std::span<const Request> tensors) const;

  // Completes the tasks of these tensors, successfully or with an error. First all of them are
  // counted, then those without a callback are completed, then their waiters wake up, and the
  // callbacks run last.
  void Finish(std::span<const Request> tensors, const Status& status);

  // Completes all tasks with this error; each message names its own tensor.
  void FailAll(const Error& why);

 private:
  TaskPtr Remove(Tasks::iterator found, const Status& status);

  SubmissionQueue& queue_;
  SyncTracer& tracer_;
  CounterPublisher& counters_;
  Tasks tasks_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_TASK_TABLE_H_
