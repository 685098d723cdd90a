// Batches in slots of the host's window.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {
namespace {

class WindowBatches final : public BatchSource {
 public:
  explicit WindowBatches(const WindowBatchesParts& parts) : parts_(parts) {}

  // A slot holds several batches. The slot is released when the rank asks for the first batch
  // behind it, because the views of the slot's last batch live until then.
  Result<BatchStep> Take(const BatchSpan& span, std::chrono::milliseconds limit,
                         Batch& batch) override {
    if (head_ && span.number == head_->first_batch + head_->batch_count) {
      head_.reset();
      parts_.window->LetGo(++slot_);
    }
    if (!head_) {
      const auto start = std::chrono::steady_clock::now();
      if (parts_.own_reader != nullptr) LMDBIO_TRY_VOID(ReadAlone(start));
      Result<std::optional<SlotHead>> head = parts_.window->AwaitSlot(slot_, limit);
      wait_s_ += SecondsSince(start);
      if (!head) return Fail(std::move(head).error());
      if (!*head) return BatchStep::kNothing;
      head_ = *head;
    }
    return TakeFromSlot(span, batch);
  }

  // No later call of Take releases the last slot.
  void End() override { parts_.window->LetGo(slot_ + 1); }

  void AddTo(LoaderCounters& counters) const override { counters.wait_s += wait_s_; }

 private:
  // Such a rank waits for nobody, so it looks for the failures of others now and then. Its own
  // failure ends the stream for the other ranks with their next batch.
  Status ReadAlone(std::chrono::steady_clock::time_point now) {
    if (std::optional<Error> failure = parts_.host->Failure()) return Fail(std::move(*failure));
    if (now >= next_look_) {
      next_look_ = now + Window::kHealthCheckPeriod;
      LMDBIO_TRY_VOID(parts_.host->CheckPeers());
    }
    Status read = parts_.own_reader->ReadNext();
    if (!read) parts_.host->Fail(read.error(), Window::When::kNow);
    return read;
  }

  Result<BatchStep> TakeFromSlot(const BatchSpan& span, Batch& batch) {
    LMDBIO_CHECK(span.number >= head_->first_batch &&
                 span.number < head_->first_batch + head_->batch_count);
    std::byte* memory = parts_.window->ring().data();
    const auto* shares = reinterpret_cast<const BatchShare*>(memory + head_->shares_at);
    auto* entries = reinterpret_cast<RecordEntry*>(memory + head_->entries_at);
    const uint64_t index = span.number - head_->first_batch;
    // A copy: in place, this rank may drop entries, and the share in the window stays as it was
    // announced.
    BatchShare share = shares[index * parts_.local_count + parts_.local_index];
    const std::span<RecordEntry> mine(entries + share.first_entry, share.record_count);
    if (parts_.in_place != nullptr) LMDBIO_TRY_VOID(ReadyInPlace(share, mine));
    const std::byte* base = head_->is_in_ring ? memory : parts_.file_bytes;
    batch = Batch(span, reinterpret_cast<std::uintptr_t>(base), mine.first(share.record_count),
                  share.skipped_count);
    return BatchStep::kBatch;
  }

  // Readers leave the heads of overflow runs to the rank. A damaged head ends the stream for the
  // other ranks with their next batch, so that they do not wait for a slot first.
  Status ReadyInPlace(BatchShare& share, std::span<RecordEntry> entries) {
    if (std::optional<Error> failure = parts_.host->UrgentFailure()) {
      return Fail(std::move(*failure));
    }
    Result<size_t> kept = parts_.in_place->Ready(entries);
    if (!kept) {
      parts_.host->Fail(kept.error(), Window::When::kNow);
      return Fail(std::move(kept).error());
    }
    share.skipped_count += share.record_count - static_cast<uint32_t>(*kept);
    share.record_count = static_cast<uint32_t>(*kept);
    return {};
  }

  WindowBatchesParts parts_;
  uint64_t slot_ = 0;                                // the slot of the batch at hand
  std::optional<SlotHead> head_;                     // of that slot, once it is announced
  std::chrono::steady_clock::time_point next_look_;  // at the peers, of a rank that reads alone
  double wait_s_ = 0;
};

}  // namespace

std::unique_ptr<BatchSource> MakeWindowBatches(const WindowBatchesParts& parts) {
  return std::make_unique<WindowBatches>(parts);
}

}  // namespace lmdbio::load
