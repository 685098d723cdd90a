#include "lmdbio/sync/engine/submission_queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/sync/engine/sync_tracer.h"

namespace lmdbio::sync {
namespace {

// The callback that this thread executes; null: none. No callback runs inside another one, so one
// pointer for each thread suffices.
thread_local const SubmissionQueue::CalledBack* calling_back = nullptr;

}  // namespace

SubmissionQueue::CalledBack::CalledBack(const SubmissionQueue& queue, const std::string& name)
    : queue_(queue), name_(name) {
  calling_back = this;
}

SubmissionQueue::CalledBack::~CalledBack() { calling_back = nullptr; }

Status SubmissionQueue::Submit(const std::vector<TaskPtr>& tasks) {
  const std::lock_guard lock(mutex_);
  if (!wake_) return Fail(closed_code_, closed_words_);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::string& name = tasks[i]->name();
    if (names_.insert(name).second) continue;
    // All or none: the names that were inserted before the conflict are released.
    for (size_t taken = 0; taken < i; ++taken) names_.erase(tasks[taken]->name());
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is in progress; wait for it, or use another name", name));
  }
  const auto now = std::chrono::steady_clock::now();
  const int64_t program_ns = clock_.Read(now.time_since_epoch() / std::chrono::nanoseconds(1));
  if (calling_back != nullptr && &calling_back->queue_ == this && tells_waits_.load()) {
    events_.push_back({nullptr, calling_back->name_, program_ns});
  }
  for (const TaskPtr& task : tasks) {
    task->number = number_++;
    task->since = now;
    events_.push_back({task, "", program_ns});
  }
  // `wake_` is called with the lock held, here and below. So no call is in progress after Close has
  // returned, and the transport behind it may be destroyed while handles live on.
  if (events_.size() >= wake_count_) wake_();
  return {};
}

// A thread that waits submits nothing more, so the helper thread must not wait for more events.
WaitBegin SubmissionQueue::BeginWait() {
  waiting_count_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  WaitBegin begin{.steady_ns = SteadyNanoseconds()};
  begin.program_ns = clock_.Read(begin.steady_ns);
  clock_.BeginWait(std::this_thread::get_id(), begin.steady_ns);
  if (wake_ && !events_.empty()) wake_();
  return begin;
}

void SubmissionQueue::EndWait(const std::string& name, Got got, const WaitBegin& begin) {
  waiting_count_.fetch_sub(1);
  const std::lock_guard lock(mutex_);
  clock_.EndWait(std::this_thread::get_id(), SteadyNanoseconds());
  if (name.empty()) return;
  // `on_wait_` is called with the lock held, too. It uses the tracer of the engine, which may be
  // destroyed after Close.
  if (on_wait_) on_wait_(name, begin.steady_ns);
  const bool is_told = got == Got::kResult && tells_waits_.load();
  if (wake_ && is_told) events_.push_back({nullptr, name, begin.program_ns});
}

void SubmissionQueue::TellWaited(const std::string& name) {
  if (!tells_waits_.load()) return;
  const std::lock_guard lock(mutex_);
  if (wake_) events_.push_back({nullptr, name, clock_.Read(SteadyNanoseconds())});
}

// Looks at the events, because some may have come since the last Take. Without this the helper
// thread would sleep although it has work.
void SubmissionQueue::SetWakeCount(size_t event_count) {
  const std::lock_guard lock(mutex_);
  wake_count_ = std::max<size_t>(event_count, 1);
  if (wake_ && !events_.empty() && events_.size() >= wake_count_) wake_();
}

std::vector<ProgramEvent> SubmissionQueue::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

bool SubmissionQueue::is_empty() {
  const std::lock_guard lock(mutex_);
  return events_.empty();
}

void SubmissionQueue::Release(std::span<const Request> requests) {
  const std::lock_guard lock(mutex_);
  for (const Request& request : requests) names_.erase(request.name);
  if (names_.empty()) all_done_.notify_all();
}

Status SubmissionQueue::AwaitAllDone() {
  std::unique_lock lock(mutex_);
  all_done_.wait(lock, [this] { return names_.empty() || !wake_; });
  return wake_ ? Status() : Fail(closed_code_, closed_words_);
}

void SubmissionQueue::End() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
}

Status SubmissionQueue::CheckGoingOn() {
  const std::lock_guard lock(mutex_);
  return has_ended_ ? Fail(closed_code_, closed_words_) : Status();
}

// A Submit either comes before the lock is taken, and its tasks are among the returned events, or
// it fails with this error. So every task ends.
std::vector<ProgramEvent> SubmissionQueue::Close(const Error& why) {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  on_wait_ = nullptr;
  closed_code_ = why.code();
  closed_words_ = why.message();
  all_done_.notify_all();
  return std::exchange(events_, {});
}

}  // namespace lmdbio::sync
