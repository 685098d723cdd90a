#include "lmdbio/load/loader/batch_cursor.h"

#include <utility>

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
  next_batch_ = before.next_batch_;
  own_ = so_far;
}

Result<BatchStep> BatchCursor::Step(std::chrono::milliseconds limit) {
  if (error_) return Fail(error_->code(), error_->message());
  LMDBIO_CHECK(source_ != nullptr);
  if (max_batches_ > 0 && next_batch_ >= max_batches_) is_ended_ = true;
  // The views of the last batch end with this call, whatever its result.
  batch_ = Batch();
  if (is_ended_) {
    source_->End();
    return BatchStep::kEnd;
  }
  // An error stays, because the source may be in any state after it.
  Result<BatchStep> step = source_->Take(schedule_->Batch(next_batch_), limit, batch_);
  if (!step) {
    error_.emplace(std::move(step).error());
    return Fail(error_->code(), error_->message());
  }
  if (*step == BatchStep::kBatch) ++next_batch_;
  return step;
}

Result<BatchStep> BatchCursor::Next(std::chrono::milliseconds limit) {
  const double cpu_before = ThreadCpuSeconds();
  Result<BatchStep> step = Step(limit);
  if (step && *step == BatchStep::kBatch) {
    CountEnds();
    ++own_.batch_count;
    own_.record_count += batch_.record_count();
    own_.skipped_count += batch_.skipped_count();
    own_.payload_bytes += batch_.payload_bytes();
  }
  own_.next_cpu_s += ThreadCpuSeconds() - cpu_before;
  return step;
}

// Counts the epochs that end with this batch, the records that Tail::kDrop leaves out of the epoch,
// and the records that Tail::kWrap takes from the next epoch.
void BatchCursor::CountEnds() {
  if (!batch_.ends_epoch()) return;
  const uint64_t an_epoch = schedule_->positions_per_epoch();
  const uint64_t end = batch_.first_position() + batch_.global_record_count();
  const uint64_t epoch_end = (batch_.epoch() + 1) * an_epoch;
  if (tail_ == Tail::kDrop) own_.dropped_count += epoch_end - end;
  ++own_.epoch_count;
  if (tail_ == Tail::kWrap) {
    own_.wrapped_count += end - epoch_end;
    own_.epoch_count += (end - epoch_end) / an_epoch;  // a batch may be larger than an epoch
  }
}

LoaderCounters BatchCursor::counters() const {
  LoaderCounters counters = own_;
  if (source_ != nullptr) source_->AddTo(counters);
  return counters;
}

}  // namespace lmdbio::load
