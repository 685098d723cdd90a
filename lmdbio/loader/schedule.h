// lmdbio/loader/schedule.h - which record stands where in the stream: plain arithmetic.
//
//   position   0, 1, 2, ... of the endless global sequence; record = position mod N
//   batch      consecutive positions
//   share      the positions of a batch that are one rank's
//
// Everything here is a pure function of its arguments, the same on every rank.
//
// Source: dissertation 3.1.1 (data access pattern); docs/loader.md "Order and shares".
#ifndef LMDBIO_LOADER_SCHEDULE_H_
#define LMDBIO_LOADER_SCHEDULE_H_

#include <cstdint>

#include "lmdbio/base/types.h"
#include "lmdbio/loader/options.h"

namespace lmdbio::loader {

struct BatchSpan {
  uint64_t number = 0;          // 0 is the first batch of the stream
  uint64_t first_position = 0;  // in the global sequence
  uint64_t record_count = 0;
  uint64_t epoch = 0;       // of the first position
  bool ends_epoch = false;  // the last record of an epoch is among them, or is left out after them
};

class Schedule {
 public:
  // Requires: record_count > 0, batch_size > 0, and with Tail::kDrop batch_size <= record_count
  Schedule(uint64_t record_count, uint64_t batch_size, Tail tail)
      : record_count_(record_count), batch_size_(batch_size), tail_(tail) {}

  uint64_t record_count() const { return record_count_; }
  uint64_t batch_size() const { return batch_size_; }

  // With Tail::kWrap, as many as it takes to have begun the next epoch or reached its start.
  uint64_t batches_per_epoch() const {
    const uint64_t whole = record_count_ / batch_size_;
    return tail_ == Tail::kDrop || record_count_ % batch_size_ == 0 ? whole : whole + 1;
  }

  BatchSpan Batch(uint64_t number) const;

  RecordIndex Record(uint64_t position) const { return {position % record_count_}; }

 private:
  uint64_t record_count_;
  uint64_t batch_size_;
  Tail tail_;
};

// The rank whose record stands at `position` of `batch`.
// Requires: position lies in the batch, rank_count > 0
int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count);

// How many records of `batch` are those of `rank`.
uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count);

}  // namespace lmdbio::loader
#endif  // LMDBIO_LOADER_SCHEDULE_H_
