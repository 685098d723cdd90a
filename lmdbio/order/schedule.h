// lmdbio/order/schedule.h - which record stands where in the stream: plain arithmetic.
//
//   position   0, 1, 2, ... of the endless global sequence
//   batch      consecutive positions
//   share      the positions of a batch that are one rank's
//   walk       the records in the database's order, again and again: the w-th is record w mod N
//   group      batches in a row that hold what the walk has at their positions, dealt out in turn;
//              a group of one batch holds it as it stands
//
// Everything here is a pure function of its arguments, the same on every rank.
//
// Source: dissertation 3.1.1 (data access pattern), 5.2.3 (one large chunk for several iterations);
// docs/loader.md "Order and shares".
#ifndef LMDBIO_ORDER_SCHEDULE_H_
#define LMDBIO_ORDER_SCHEDULE_H_

#include <cstdint>

#include "lmdbio/base/types.h"
#include "lmdbio/order/order_options.h"

namespace lmdbio::order {

struct BatchSpan {
  uint64_t number = 0;          // 0 is the first batch of the stream
  uint64_t first_position = 0;  // in the global sequence
  uint64_t record_count = 0;
  uint64_t epoch = 0;       // of the first position
  bool ends_epoch = false;  // the last record of an epoch is among them, or is left out after them
};

// K batches of n records each, or one of any size. The group's i-th record of the walk is record
// i / K of its batch i mod K: so a rank's records of all K batches follow each other in the walk,
// and no position depends on the number of ranks.
struct BatchGroup {
  uint64_t first_batch = 0;     // its number
  uint64_t batch_count = 1;     // K
  uint64_t first_position = 0;  // in the sequence and in the walk
  uint64_t record_count = 0;    // of all batches

  uint64_t records_per_batch() const { return record_count / batch_count; }

  // The batch, counted from the group's first, and the position of the group's i-th record.
  // Requires: i < record_count
  uint64_t BatchOf(uint64_t i) const { return batch_count == 1 ? 0 : i % batch_count; }
  uint64_t PositionOf(uint64_t i) const {
    if (batch_count == 1) return first_position + i;
    return first_position + i % batch_count * records_per_batch() + i / batch_count;
  }
};

class Schedule {
 public:
  // chunk_batches  of a group, where an epoch has so many left; 1: each batch is one
  // Requires: record_count > 0, batch_size > 0, and with Tail::kDrop batch_size <= record_count;
  // chunk_batches > 0
  Schedule(uint64_t record_count, uint64_t batch_size, Tail tail, uint64_t chunk_batches = 1)
      : record_count_(record_count),
        batch_size_(batch_size),
        tail_(tail),
        chunk_batches_(chunk_batches) {}

  uint64_t record_count() const { return record_count_; }
  uint64_t batch_size() const { return batch_size_; }
  uint64_t chunk_batches() const { return chunk_batches_; }

  // With Tail::kWrap, as many as it takes to have begun the next epoch or reached its start.
  uint64_t batches_per_epoch() const {
    const uint64_t whole = record_count_ / batch_size_;
    return tail_ == Tail::kDrop || record_count_ % batch_size_ == 0 ? whole : whole + 1;
  }

  BatchSpan Batch(uint64_t number) const;

  // The group that batch `number` belongs to. Only whole batches within one epoch share one.
  BatchGroup Group(uint64_t number) const;

  RecordIndex RecordOfWalk(uint64_t position) const { return {position % record_count_}; }

 private:
  uint64_t record_count_;
  uint64_t batch_size_;
  Tail tail_;
  uint64_t chunk_batches_;
};

// The rank whose record stands at `position` of `batch`.
// Requires: position lies in the batch, rank_count > 0
int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count);

// How many records of `batch` are those of `rank`.
uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count);

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_SCHEDULE_H_
