// lmdbio/load/order/epoch_walk.h - the epoch order: the order in which an epoch visits the records.
//
// Readers read the records in this order; schedule.h deals them out to batches. Each record occurs
// once in an epoch. All functions are arithmetic; nothing is stored for each record.
//
//   sequential   0, 1, 2, ...
//   global       a keyed permutation of all records
//   block        blocks of neighbouring records, the blocks permuted
//
// Source: docs/order.md "The sequence".
#ifndef LMDBIO_LOAD_ORDER_EPOCH_WALK_H_
#define LMDBIO_LOAD_ORDER_EPOCH_WALK_H_

#include <cstdint>
#include <span>

#include "lmdbio/base/types.h"
#include "lmdbio/load/order/keyed_permutation.h"
#include "lmdbio/load/order/order_options.h"

namespace lmdbio::load {

struct WalkOptions {
  uint64_t record_count = 1;
  Order order = Order::kSequential;
  Shuffle shuffle = Shuffle::kGlobal;  // with Order::kShuffle
  uint64_t seed = 0;
  uint64_t block_records = 1;  // with Shuffle::kBlock
};

// Neighbouring records that are consecutive in the epoch order.
struct WalkRun {
  RecordIndex first;
  uint64_t count = 0;
};

// Threads: const; any number of readers.
class EpochWalk {
 public:
  // Requires: record_count > 0, block_records > 0
  // Cost: some 100 ns, no memory
  EpochWalk(const WalkOptions& options, uint64_t epoch);

  uint64_t record_count() const { return options_.record_count; }
  uint64_t epoch() const { return epoch_; }

  // The record at index k of the epoch order, and the index of a record.
  // Requires: k and record are below record_count()
  RecordIndex RecordAt(uint64_t k) const;
  uint64_t PlaceOf(RecordIndex record) const;

  // The records at indices [k, k + n), n <= count_max, that are neighbours in the database. With a
  // global shuffle n is 1, even if the next record happens to be a neighbour.
  // Requires: k < record_count(), count_max > 0
  WalkRun RunAt(uint64_t k, uint64_t count_max) const;

  // The records at indices [k, k + records.size()).
  // Requires: k + records.size() <= record_count()
  void Fill(uint64_t k, std::span<RecordIndex> records) const;

 private:
  enum class WalkKind { kSequential, kGlobal, kBlock };
  // An index in block order: the turn of its block, and the offset in that block.
  struct InBlock {
    uint64_t turn = 0;
    uint64_t into = 0;
  };
  InBlock Find(uint64_t k) const;

  WalkOptions options_;
  uint64_t epoch_;
  WalkKind kind_;
  KeyedPermutation permutation_;  // of records, or of blocks
  // The last block of the database may be shorter than the others.
  uint64_t short_turn_ = 0;  // its turn in the epoch order
  uint64_t missing_ = 0;     // the number of records that it lacks
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_ORDER_EPOCH_WALK_H_
