#include "lmdbio/load/loader/batch_cursor.h"

#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {

void BatchCursor::Seek(const StreamState& stream) {
  dataset_ = stream.dataset;
  schedule_.emplace(stream.schedule);
  next_batch_ = stream.next_batch;
}

// The counters continue, so a user sees one stream across Restore and SetEpoch.
void BatchCursor::TakeOver(const BatchCursor& before, const LoaderCounters& so_far) {
  dataset_ = before.dataset_;
  schedule_ = before.schedule_;
  next_batch_.store(before.next_batch_.load());
  own_ = with_source_ = so_far;
}

void BatchCursor::ReadFrom(BatchSource& source) {
  source_ = &source;
  returns_ = std::make_shared<BatchReturns>(source);
}

void BatchCursor::LeaveSource() {
  source_ = nullptr;
  if (returns_) returns_->LeaveSource();
}

Result<BatchStep> BatchCursor::Step(std::chrono::milliseconds limit, Batch& batch) {
  if (error_) return Fail(error_->Copy());
  LMDBIO_CHECK(source_ != nullptr);
  const uint64_t number = next_batch();
  if (max_batches_ > 0 && number >= max_batches_) is_ended_ = true;
  if (is_ended_) {
    Status ended = source_->End();
    if (ended) return BatchStep::kEnd;
    error_.emplace(std::move(ended).error());
    return Fail(error_->Copy());
  }
  // An error stays, because the source may be in any state after it.
  const Result<TakeStep> step = source_->Take(schedule_->Batch(number), limit, batch);
  if (!step) {
    error_.emplace(step.error().Copy());
    return Fail(error_->Copy());
  }
  if (*step == TakeStep::kNothing) return BatchStep::kNothing;
  if (*step == TakeStep::kHeldUp) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("batch {} has no memory: it is occupied by batches that threads hold "
                            "and do not return ({} held); a thread returns its batch when it takes "
                            "the next one; raise memory_budget_bytes, or return batches earlier",
                            number, held_count()));
  }
  next_batch_.store(number + 1);
  return BatchStep::kBatch;
}

Result<BatchStep> BatchCursor::Next(std::chrono::milliseconds limit, HeldBatch& held) {
  LMDBIO_CHECK(!held.is_held());
  const double cpu_before = ThreadCpuSeconds();
  Batch batch;
  Result<BatchStep> step = Step(limit, batch);
  const bool is_taken = step && *step == BatchStep::kBatch;
  if (is_taken) {
    returns_->CountTaken();
    held = HeldBatch(batch, returns_);
  }
  const std::lock_guard lock(mutex_);
  if (is_taken) {
    CountEnds(batch);
    ++own_.batch_count;
    own_.record_count += batch.sample_count();
    own_.skipped_count += batch.skipped_count();
    own_.payload_bytes += batch.payload_bytes();
  }
  own_.next_cpu_s += ThreadCpuSeconds() - cpu_before;
  with_source_ = own_;
  if (source_ != nullptr) source_->AddTo(with_source_);
  return step;
}

// Counts the epochs that end with this batch, the records that Tail::kDrop leaves out of the epoch,
// and the records that Tail::kWrap takes from the next epoch.
void BatchCursor::CountEnds(const Batch& batch) {
  if (!batch.ends_epoch()) return;
  const uint64_t an_epoch = schedule_->positions_per_epoch();
  const uint64_t end = batch.first_position() + batch.global_record_count();
  const uint64_t epoch_end = (batch.epoch() + 1) * an_epoch;
  if (tail_ == Tail::kDrop) own_.dropped_count += epoch_end - end;
  ++own_.epoch_count;
  if (tail_ == Tail::kWrap) {
    own_.wrapped_count += end - epoch_end;
    own_.epoch_count += (end - epoch_end) / an_epoch;  // a batch may be larger than an epoch
  }
}

LoaderCounters BatchCursor::counters() const {
  const std::lock_guard lock(mutex_);
  return with_source_;
}

}  // namespace lmdbio::load
