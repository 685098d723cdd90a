// lmdbio/load/reader/slot_queue.h - the slots that a reader has begun and not yet finished.
#ifndef LMDBIO_LOAD_READER_SLOT_QUEUE_H_
#define LMDBIO_LOAD_READER_SLOT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "lmdbio/load/slots/slot_planner.h"

namespace lmdbio::load {

// A planned slot, and the part of its reads that this reader has to do.
struct SlotInFlight {
  explicit SlotInFlight(const ReadPlanOptions& options) : slot(options) {}

  PlannedSlot slot;
  uint64_t read_bytes = 0;     // that this reader has to read
  uint64_t reads_left = 0;     // of these reads, those that are not complete
  std::vector<Extent> chunks;  // of the file cache, that this slot is the first to need
  bool is_done = false;        // this reader's part
};

// Slots in the order of their numbers. Slot objects are used again, because plans keep large
// buffers. Threads: one at a time.
class SlotQueue {
 public:
  using Slots = std::deque<std::unique_ptr<SlotInFlight>>;

  explicit SlotQueue(const ReadPlanOptions& options) : options_(options) {}

  // A slot object to plan the next slot in.
  std::unique_ptr<SlotInFlight> New() {
    if (spare_.empty()) return std::make_unique<SlotInFlight>(options_);
    std::unique_ptr<SlotInFlight> slot = std::move(spare_.back());
    spare_.pop_back();
    return slot;
  }

  // Appends the next slot. Lifetime: of the result: until RemoveDone after the slot is done
  SlotInFlight& Push(std::unique_ptr<SlotInFlight> slot) {
    slot->is_done = false;
    return *slots_.emplace_back(std::move(slot));
  }

  // Requires: slot `number` is in the queue
  SlotInFlight& At(uint64_t number) { return *slots_[number - slots_.front()->slot.number]; }

  // The oldest slot that is not done; null if there is none.
  SlotInFlight* Oldest() {
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->is_done; });
    return found == slots_.end() ? nullptr : found->get();
  }

  // Removes the slots that are done, up to the oldest one that is not.
  void RemoveDone() {
    while (!slots_.empty() && slots_.front()->is_done) {
      spare_.push_back(std::move(slots_.front()));
      slots_.pop_front();
    }
  }

  const Slots& slots() const { return slots_; }

 private:
  ReadPlanOptions options_;
  Slots slots_;
  std::vector<std::unique_ptr<SlotInFlight>> spare_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_SLOT_QUEUE_H_
