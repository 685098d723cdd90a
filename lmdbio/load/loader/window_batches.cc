// Batches in slots of the host's window.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/load/loader/batch_returns.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {
namespace {

using Clock = std::chrono::steady_clock;

// The slots of the window whose batches are in use. They are released in order.
// Threads: any.
class SlotsInUse {
 public:
  explicit SlotsInUse(Window& window) : window_(window) {}

  void Open(uint64_t first_batch, uint64_t end_batch, uint64_t slot) {
    const std::lock_guard lock(mutex_);
    slots_.Open(first_batch, end_batch, slot);
  }
  void Return(uint64_t batch_number) {
    const std::lock_guard lock(mutex_);
    slots_.Return(batch_number, [this](uint64_t slot) { window_.LetGo(slot + 1); });
    ++return_count_;
    returned_.notify_all();
  }
  void Abandon(uint64_t next_batch) {
    const std::lock_guard lock(mutex_);
    slots_.Abandon(next_batch, [this](uint64_t slot) { window_.LetGo(slot + 1); });
  }

  uint64_t return_count() const {
    const std::lock_guard lock(mutex_);
    return return_count_;
  }
  // Sleeps until return_count() differs from `before`, or until `limit`.
  void AwaitReturn(uint64_t before, Clock::time_point limit) {
    std::unique_lock lock(mutex_);
    returned_.wait_until(lock, limit, [&] { return return_count_ != before; });
  }

  // Call this while a slot is awaited whose memory is occupied by slots in use: true if no batch
  // has been returned for `limit`. The next wait begins anew then.
  bool IsHeldUp(Clock::time_point now, std::chrono::milliseconds limit) {
    const std::lock_guard lock(mutex_);
    if (slots_.is_empty() || !since_ || return_count_ != count_then_) {
      since_ = now;
      count_then_ = return_count_;
      return false;
    }
    if (now - *since_ < limit) return false;
    since_.reset();
    return true;
  }

 private:
  Window& window_;
  mutable std::mutex mutex_;
  BatchesInUse<uint64_t> slots_;  // their numbers
  uint64_t return_count_ = 0;
  std::condition_variable returned_;
  // Since when batches of these slots are awaited in vain, and the returns up to then.
  std::optional<Clock::time_point> since_;
  uint64_t count_then_ = 0;
};

class WindowBatches final : public BatchSource {
 public:
  explicit WindowBatches(const WindowBatchesParts& parts) : parts_(parts), slots_(*parts.window) {}

  // A slot holds several batches.
  Result<TakeStep> Take(const BatchSpan& span, std::chrono::milliseconds limit,
                        Batch& batch) override {
    if (head_ && span.number == head_->first_batch + head_->batch_count) {
      head_.reset();
      ++slot_;
    }
    if (!head_) {
      const auto start = Clock::now();
      Result<TakeStep> step = AwaitHead(start, limit);
      wait_s_ += SecondsSince(start);
      if (!step || *step != TakeStep::kBatch) return step;
      slots_.Open(span.number, head_->first_batch + head_->batch_count, slot_);
    }
    next_batch_ = span.number + 1;
    LMDBIO_TRY(batch, TakeFromSlot(span));
    return TakeStep::kBatch;
  }

  void Return(uint64_t batch_number) override { slots_.Return(batch_number); }

  Status End() override {
    slots_.Abandon(next_batch_);
    return parts_.in_place != nullptr ? parts_.in_place->map().CheckWhole() : Status();
  }

  void AddTo(LoaderCounters& counters) const override { counters.wait_s += wait_s_; }

 private:
  // Sets the head once the slot is announced. Looks now and then whether batches that other threads
  // hold keep the slot from coming.
  Result<TakeStep> AwaitHead(Clock::time_point start, std::chrono::milliseconds limit) {
    const auto give_up = start + limit;
    for (auto now = start;; now = Clock::now()) {
      const auto look_at = std::min(give_up, now + Window::kHealthCheckPeriod);
      const uint64_t returns = slots_.return_count();
      bool may_come = true;
      if (parts_.own_reader != nullptr) {
        LMDBIO_TRY(may_come, ReadAlone(now));
      }
      if (may_come) {
        const auto this_time = std::chrono::ceil<std::chrono::milliseconds>(look_at - now);
        LMDBIO_TRY(head_, parts_.window->AwaitSlot(slot_, this_time));
        if (head_) return TakeStep::kBatch;
      } else {
        slots_.AwaitReturn(returns, look_at);
      }
      const bool is_occupied = !may_come || parts_.window->IsAwaited();
      if (is_occupied && slots_.IsHeldUp(Clock::now(), parts_.held_up_limit)) {
        return TakeStep::kHeldUp;
      }
      if (look_at == give_up) return TakeStep::kNothing;
    }
  }

  // Such a rank waits for nobody, so it looks for the failures of others now and then. Its own
  // failure ends the stream for the other ranks with their next batch.
  // Returns: false if batches that other threads hold occupy the memory
  Result<bool> ReadAlone(Clock::time_point now) {
    if (std::optional<Error> failure = parts_.host->Failure()) return Fail(std::move(*failure));
    if (now >= next_look_) {
      next_look_ = now + Window::kHealthCheckPeriod;
      LMDBIO_TRY_VOID(parts_.host->CheckPeers());
    }
    Result<bool> is_read = parts_.own_reader->ReadNext();
    if (!is_read) parts_.host->Fail(is_read.error(), Window::When::kNow);
    return is_read;
  }

  Result<Batch> TakeFromSlot(const BatchSpan& span) {
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
    return Batch(span, reinterpret_cast<std::uintptr_t>(base), mine.first(share.record_count),
                 share.skipped_count, parts_.field_count);
  }

  // Readers leave the heads of overflow runs to the rank. A damaged head ends the stream for the
  // other ranks with their next batch, so that they do not wait for a slot first.
  Status ReadyInPlace(BatchShare& share, std::span<RecordEntry> entries) {
    if (std::optional<Error> failure = parts_.host->UrgentFailure()) {
      return Fail(std::move(*failure));
    }
    Result<size_t> kept = parts_.in_place->Ready(entries, parts_.field_count);
    if (!kept) {
      parts_.host->Fail(kept.error(), Window::When::kNow);
      return Fail(std::move(kept).error());
    }
    const auto dropped = share.record_count - static_cast<uint32_t>(*kept);
    share.skipped_count += dropped / static_cast<uint32_t>(parts_.field_count);
    share.record_count = static_cast<uint32_t>(*kept);
    return {};
  }

  WindowBatchesParts parts_;
  SlotsInUse slots_;
  uint64_t slot_ = 0;             // the slot of the batch at hand
  std::optional<SlotHead> head_;  // of that slot, once it is announced
  uint64_t next_batch_ = 0;       // behind the batch that was taken last
  Clock::time_point next_look_;   // at the peers, of a rank that reads alone
  double wait_s_ = 0;
};

}  // namespace

std::unique_ptr<BatchSource> MakeWindowBatches(const WindowBatchesParts& parts) {
  return std::make_unique<WindowBatches>(parts);
}

}  // namespace lmdbio::load
