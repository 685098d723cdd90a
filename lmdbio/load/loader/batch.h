// lmdbio/load/loader/batch.h - one rank's share of a batch, as views into shared memory, and the
// batch that a thread holds.
#ifndef LMDBIO_LOAD_LOADER_BATCH_H_
#define LMDBIO_LOAD_LOADER_BATCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lmdbio/base/types.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// The result of a step to the next batch. kNothing: a time limit has passed.
enum class BatchStep { kBatch, kEnd, kNothing };

// The batch and every span from it are valid until the batch is returned (HeldBatch, Loader::Next),
// or until the loader ends. The bytes were not copied after they were read.
class Batch {
 public:
  Batch() = default;
  // base         address that the entries' offsets count from
  // entries      [samples * field_count]
  // field_count  records of each sample
  Batch(const BatchSpan& span, std::uintptr_t base, std::span<const RecordEntry> entries,
        uint32_t skipped_count, size_t field_count = 1)
      : span_(span),
        base_(base),
        entries_(entries),
        skipped_count_(skipped_count),
        field_count_(field_count) {}

  uint64_t number() const { return span_.number; }  // of the stream's batches, from 0
  uint64_t epoch() const { return span_.epoch; }    // of the batch's first position
  // The batch of all ranks together; with a view its samples.
  uint64_t first_position() const { return span_.first_position; }
  uint64_t global_record_count() const { return span_.record_count; }
  // Whether an epoch ends with, or within, this batch.
  bool ends_epoch() const { return span_.ends_epoch; }

  // The number of earlier passes over its records in this epoch (LoaderOptions::reuse).
  uint64_t pass() const { return span_.pass; }

  // The number of records of this rank; may be 0. With a view, record i is that of field
  // i % field_count() of sample i / field_count().
  size_t record_count() const { return entries_.size(); }
  // The number of records of each sample: 1 without a view.
  size_t field_count() const { return field_count_; }
  size_t sample_count() const { return entries_.size() / field_count_; }
  // The number of samples that were left out of this rank's share, because one of their records
  // could not be read (OnError::kSkip).
  uint32_t skipped_count() const { return skipped_count_; }

  // Of all keys and values of this rank.
  uint64_t payload_bytes() const {
    uint64_t sum = 0;
    for (const RecordEntry& entry : entries_) sum += uint64_t{entry.key_bytes} + entry.value_bytes;
    return sum;
  }

  // Requires (here and below): i < record_count()
  Bytes key(size_t i) const { return At(entries_[i].key_at, entries_[i].key_bytes); }
  Bytes value(size_t i) const { return At(entries_[i].value_at, entries_[i].value_bytes); }
  // The position of the record's sample in the global sequence.
  uint64_t position(size_t i) const { return entries_[i].position; }

 private:
  Bytes At(uint64_t at, uint32_t length_bytes) const {
    return {reinterpret_cast<const std::byte*>(base_ + at), length_bytes};
  }

  BatchSpan span_;
  std::uintptr_t base_ = 0;
  std::span<const RecordEntry> entries_;
  uint32_t skipped_count_ = 0;
  size_t field_count_ = 1;
};

class BatchReturns;

// A batch that was taken from a loader, until it is returned. Its memory serves no later batch
// before that. May outlive the loader, but its views may not.
// Threads: one at a time; not necessarily the one that took it
class HeldBatch {
 public:
  HeldBatch() = default;
  // returns  of the loader, which counts the batch as held already
  HeldBatch(const Batch& batch, std::shared_ptr<BatchReturns> returns)
      : batch_(batch), returns_(std::move(returns)) {}
  HeldBatch(HeldBatch&& other) noexcept
      : batch_(std::exchange(other.batch_, Batch())), returns_(std::move(other.returns_)) {}
  HeldBatch& operator=(HeldBatch&& other) noexcept {
    if (this == &other) return *this;
    Return();
    batch_ = std::exchange(other.batch_, Batch());
    returns_ = std::move(other.returns_);
    return *this;
  }
  ~HeldBatch() { Return(); }

  // Ends the views. Does nothing if no batch is held.
  void Return();

  bool is_held() const { return returns_ != nullptr; }
  // An empty batch if none is held.
  const Batch& operator*() const { return batch_; }
  const Batch* operator->() const { return &batch_; }

 private:
  Batch batch_;
  std::shared_ptr<BatchReturns> returns_;  // null: no batch is held
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_BATCH_H_
