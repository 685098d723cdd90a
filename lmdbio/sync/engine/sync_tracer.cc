#include "lmdbio/sync/engine/sync_tracer.h"

#include <chrono>

#include "lmdbio/trace/event_time.h"

namespace lmdbio::sync {

int64_t SteadyNanoseconds() { return trace::SteadyNow(); }

// The event has the time of the submission, not the present one. Otherwise the time in the queue
// would be missing in `negotiate`.
void SyncTracer::Submitted(Task& task) {
  const int64_t since_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(task.since.time_since_epoch()).count();
  recorder_.RecordAt(since_ns, trace::FlightKind::kSubmitted, task.name(),
                     {.number = task.number, .bytes = task.submission.request.byte_count()});
  if (!timeline_) return;
  task.drawn = timeline_->Begin(task.name(), task.submission.request.byte_count(), since_ns);
}

void SyncTracer::Done(Task& task) {
  recorder_.Record(trace::FlightKind::kDone, task.name(), {.number = task.number});
  End(task);
}

void SyncTracer::Failed(Task& task) {
  recorder_.Record(trace::FlightKind::kFailed, task.name(), {.number = task.number});
  End(task);
}

void SyncTracer::End(Task& task) {
  if (!timeline_) return;
  const std::string_view operation = NameOf(task.submission.request.operation);
  timeline_->End(task.drawn, operation, SteadyNanoseconds());
}

void SyncTracer::Stalled(const Task& task) {
  recorder_.Record(trace::FlightKind::kStalled, task.name(), {.number = task.number});
}

// Reads the clock once for the bucket. Its tensors share the steps from here on, and the timeline
// writes these steps once.
uint64_t SyncTracer::Agreed(std::span<Task* const> tasks) {
  const int64_t now_ns = SteadyNanoseconds();
  BeginStep(++bucket_count_, now_ns);
  for (Task* const task : tasks) {
    if (task == nullptr) continue;
    recorder_.RecordAt(now_ns, trace::FlightKind::kAgreed, task->name(), {.number = task->number});
    if (timeline_) timeline_->Agree(task->drawn, bucket_, now_ns);
  }
  return bucket_;
}

void SyncTracer::Resumed(uint64_t bucket) { BeginStep(bucket, SteadyNanoseconds()); }

void SyncTracer::BeginStep(uint64_t bucket, int64_t now_ns) {
  bucket_ = bucket;
  bucket_began_ns_ = now_ns;
  bucket_bytes_ = 0;
}

// A fused bucket has one record, under the name of its first tensor. A group above the threshold
// makes several calls in one bucket.
void SyncTracer::Transferring(std::span<Task* const> tasks, uint64_t bytes) {
  transfer_began_ns_ = SteadyNanoseconds();
  const std::string_view first =
      tasks.empty() || tasks[0] == nullptr ? "" : std::string_view(tasks[0]->name());
  recorder_.RecordAt(transfer_began_ns_, trace::FlightKind::kBegun, first,
                     {.bytes = bytes, .collective = ++collective_count_});
}

void SyncTracer::Transferred(uint64_t bytes) {
  bucket_bytes_ += bytes;
  if (timeline_) timeline_->Transfer(bytes, transfer_began_ns_, SteadyNanoseconds());
}

void SyncTracer::Staged(std::span<Task* const> tasks, uint64_t bytes, int64_t begin_ns) {
  const int64_t now_ns = SteadyNanoseconds();
  const std::string_view first = tasks[0] == nullptr ? "" : std::string_view(tasks[0]->name());
  recorder_.RecordAt(now_ns, trace::FlightKind::kStaged, first, {.bytes = bytes});
  if (timeline_) timeline_->CopyOut(bytes, begin_ns, now_ns);
}

void SyncTracer::Unpacked(std::span<Task* const> tasks) {
  if (!timeline_) return;
  timeline_->Bucket({.number = bucket_,
                     .bytes = bucket_bytes_,
                     .tensor_count = tasks.size(),
                     .begin_ns = bucket_began_ns_,
                     .end_ns = SteadyNanoseconds()});
}

void SyncTracer::Round(uint64_t number, int64_t begin_ns) {
  if (timeline_) timeline_->Round(number, begin_ns, SteadyNanoseconds());
}

void SyncTracer::PlanAdopted(uint64_t epoch) {
  recorder_.Record(trace::FlightKind::kPlanAdopted, {}, {.number = epoch});
  if (timeline_) timeline_->Mark("plan adopted", SteadyNanoseconds());
}

void SyncTracer::PlanEnded(uint64_t epoch) {
  recorder_.Record(trace::FlightKind::kPlanEnded, {}, {.number = epoch});
  if (timeline_) timeline_->Mark("plan ended", SteadyNanoseconds());
}

void SyncTracer::Waited(const std::string& name, int64_t begin_ns) {
  if (timeline_) timeline_->Waited(name, begin_ns, SteadyNanoseconds());
}

// The thread is about to sleep, so writing the file delays no collective.
Status SyncTracer::Rest() {
  return timeline_ ? timeline_->FlushIfDue(SteadyNanoseconds()) : Status();
}

Status SyncTracer::Close() { return timeline_ ? timeline_->Close() : Status(); }

}  // namespace lmdbio::sync
