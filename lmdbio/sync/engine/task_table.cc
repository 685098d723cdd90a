#include "lmdbio/sync/engine/task_table.h"

#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

void TaskTable::Add(TaskPtr task) {
  const std::string name = task->name();
  tasks_[name] = std::move(task);
}

std::vector<Task*> TaskTable::Find(std::span<const Request> tensors) const {
  std::vector<Task*> tasks;
  tasks.reserve(tensors.size());
  for (const Request& tensor : tensors) {
    const auto found = tasks_.find(tensor.name);
    tasks.push_back(found == tasks_.end() ? nullptr : found->second.get());
  }
  return tasks;
}

// A woken thread may take the core of the helper thread. So the helper thread completes all tasks
// of a response before it wakes the first waiter: a thread that waits for all of them wakes up
// once, and finds all of them done. Callbacks may take long, so they run last.
void TaskTable::Finish(std::span<const Request> tensors, const Status& status) {
  std::vector<Tasks::iterator> quiet;
  std::vector<Tasks::iterator> called_back;
  for (const Request& tensor : tensors) {
    const auto found = tasks_.find(tensor.name);
    if (found == tasks_.end()) continue;  // this rank has joined, and has not submitted it
    (found->second->submission.callback ? called_back : quiet).push_back(found);
  }
  counters_.current().tensor_count += quiet.size() + called_back.size();
  // The names become free before any thread or callback learns of the result, because it may submit
  // the same tensors at once.
  queue_.Release(tensors);
  counters_.Publish();  // before the first waiter can read the counters
  std::vector<TaskPtr> unwoken;
  unwoken.reserve(quiet.size());
  for (const Tasks::iterator& found : quiet) unwoken.push_back(Remove(found, status));
  for (const TaskPtr& task : unwoken) task->WakeWaiters();
  for (const Tasks::iterator& found : called_back) Remove(found, status)->WakeWaiters();
}

TaskPtr TaskTable::Remove(Tasks::iterator found, const Status& status) {
  TaskPtr task = std::move(found->second);
  tasks_.erase(found);
  if (status) {
    tracer_.Done(*task);
  } else {
    tracer_.Failed(*task);
  }
  const SubmissionQueue::CalledBack scope(queue_, task->name());
  task->Finish(status);
  return task;
}

// The queue is closed already, so a callback that submits again is refused.
void TaskTable::FailAll(const Error& why) {
  for (const auto& [name, task] : std::exchange(tasks_, {})) {
    tracer_.Failed(*task);
    task->Finish(
        Fail(why.Copy().Within(fmt::format("tensor '{}' (number {})", name, task->number))));
    task->WakeWaiters();
  }
}

}  // namespace lmdbio::sync
