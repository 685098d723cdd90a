#include "lmdbio/sync/witness.h"

#include <chrono>

namespace lmdbio::sync {
int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Witness::Submitted(const Task& task) {
  const int64_t since_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(task.since.time_since_epoch()).count();
  recorder_.RecordAt(since_ns, trace::FlightKind::kSubmitted, task.name(),
                     {.number = task.number, .bytes = task.submission.request.byte_count()});
  if (timeline_) timeline_->Begin(task.name(), task.submission.request.byte_count(), since_ns);
}

void Witness::Done(const Task& task) {
  recorder_.Record(trace::FlightKind::kDone, task.name(), {.number = task.number});
  if (timeline_) timeline_->End(task.name(), SteadyNanoseconds());
}

void Witness::Failed(const Task& task) {
  recorder_.Record(trace::FlightKind::kFailed, task.name(), {.number = task.number});
  if (timeline_) timeline_->End(task.name(), SteadyNanoseconds());
}

void Witness::Stalled(const Task& task) {
  recorder_.Record(trace::FlightKind::kStalled, task.name(), {.number = task.number});
}

void Witness::Enter(std::span<Task* const> tasks, trace::TensorPhase phase, int64_t now_ns) {
  if (!timeline_) return;
  for (const Task* const task : tasks) {
    if (task != nullptr) timeline_->Enter(task->name(), phase, now_ns);
  }
}

void Witness::Agreed(std::span<Task* const> tasks) {
  const int64_t now_ns = SteadyNanoseconds();
  for (const Task* const task : tasks) {
    if (task == nullptr) continue;
    recorder_.RecordAt(now_ns, trace::FlightKind::kAgreed, task->name(), {.number = task->number});
  }
  bucket_began_ns_ = now_ns;
  bucket_bytes_ = 0;
  Enter(tasks, trace::TensorPhase::kPack, now_ns);
}

void Witness::Packed(std::span<Task* const> tasks, uint64_t bytes) {
  const int64_t now_ns = SteadyNanoseconds();
  const std::string_view first =
      tasks.empty() || tasks[0] == nullptr ? "" : std::string_view(tasks[0]->name());
  recorder_.RecordAt(now_ns, trace::FlightKind::kBegun, first,
                     {.bytes = bytes, .collective = ++collective_count_});
  bucket_bytes_ += bytes;
  Enter(tasks, trace::TensorPhase::kReduce, now_ns);
}

void Witness::Reduced(std::span<Task* const> tasks, uint64_t /*bytes*/) {
  Enter(tasks, trace::TensorPhase::kUnpack, SteadyNanoseconds());
}

void Witness::Unpacked(std::span<Task* const> tasks) {
  if (!timeline_) return;
  const int64_t now_ns = SteadyNanoseconds();
  Enter(tasks, trace::TensorPhase::kFinish, now_ns);
  timeline_->Bucket({.collective = collective_count_,
                     .bytes = bucket_bytes_,
                     .tensor_count = tasks.size(),
                     .begin_ns = bucket_began_ns_,
                     .end_ns = now_ns});
}

void Witness::Round(uint64_t number, int64_t begin_ns) {
  if (timeline_) timeline_->Round(number, begin_ns, SteadyNanoseconds());
}

void Witness::PlanAdopted(uint64_t epoch) {
  recorder_.Record(trace::FlightKind::kPlanAdopted, {}, {.number = epoch});
  if (timeline_) timeline_->Mark("plan adopted", SteadyNanoseconds());
}

void Witness::PlanEnded(uint64_t epoch) {
  recorder_.Record(trace::FlightKind::kPlanEnded, {}, {.number = epoch});
  if (timeline_) timeline_->Mark("plan ended", SteadyNanoseconds());
}

void Witness::Waited(const std::string& name, int64_t begin_ns) {
  if (timeline_) timeline_->Waited(name, begin_ns, SteadyNanoseconds());
}

Status Witness::Rest() { return timeline_ ? timeline_->FlushIfDue(SteadyNanoseconds()) : Status(); }

Status Witness::Close() { return timeline_ ? timeline_->Close() : Status(); }

}  // namespace lmdbio::sync
