// lmdbio/load/loader/batch_returns.h - the way of batches back to the memory that they came from.
//
// The threads of a rank take batches in order, and return them in any order. Batches share memory:
// those of a slot, or of a batch group. It is released when the last of them has been returned, and
// after all memory before it, because a window releases slots in order.
//
// Source: docs/loader.md "Threads of a rank".
#ifndef LMDBIO_LOAD_LOADER_BATCH_RETURNS_H_
#define LMDBIO_LOAD_LOADER_BATCH_RETURNS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "lmdbio/load/loader/batch_source.h"

namespace lmdbio::load {

// Passes returned batches to their source while it exists, and counts the batches that are held.
// Threads: any.
class BatchReturns {
 public:
  explicit BatchReturns(BatchSource& source) : source_(&source) {}

  // A batch was taken.
  void CountTaken() {
    const std::lock_guard lock(mutex_);
    ++held_count_;
  }
  void Return(uint64_t batch_number) {
    const std::lock_guard lock(mutex_);
    --held_count_;
    if (source_ != nullptr) source_->Return(batch_number);
  }
  // The source is about to end.
  void LeaveSource() {
    const std::lock_guard lock(mutex_);
    source_ = nullptr;
  }
  size_t held_count() const {
    const std::lock_guard lock(mutex_);
    return held_count_;
  }

 private:
  mutable std::mutex mutex_;
  BatchSource* source_;  // borrowed; null once it has ended
  size_t held_count_ = 0;
};

// Groups of consecutive batches that share memory. A group ends when all of its batches have been
// returned and all groups before it have ended.
// Threads: one at a time.
template <typename Memory>
class BatchesInUse {
 public:
  // Opens the group of the batches [first, end), which follows the last one.
  // Lifetime: the reference is valid until the group ends
  Memory& Open(uint64_t first, uint64_t end, Memory memory) {
    groups_.push_back({end, end - first, std::move(memory)});
    return groups_.back().memory;
  }
  // Calls end(memory) for each group that ends with the return of this batch.
  template <typename End>
  void Return(uint64_t batch_number, End&& end) {
    for (Shared& group : groups_) {
      if (batch_number >= group.end) continue;
      --group.left;
      break;
    }
    EndReturned(end);
  }
  // The same for all batches from `next` on, which nobody will take.
  template <typename End>
  void Abandon(uint64_t next, End&& end) {
    if (!groups_.empty() && next < groups_.back().end) {
      Shared& last = groups_.back();
      last.left -= last.end - next;
      last.end = next;
    }
    EndReturned(end);
  }
  bool is_empty() const { return groups_.empty(); }

 private:
  struct Shared {
    uint64_t end;   // behind its last batch
    uint64_t left;  // its batches that have not been returned
    Memory memory;
  };

  template <typename End>
  void EndReturned(End&& end) {
    while (!groups_.empty() && groups_.front().left == 0) {
      end(groups_.front().memory);
      groups_.pop_front();
    }
  }

  std::deque<Shared> groups_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_BATCH_RETURNS_H_
