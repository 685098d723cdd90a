// lmdbio/order/epoch_walk.h - in which order an epoch goes over the records: plain arithmetic.
//
// The walk is what is read; batches are dealt out of it (schedule.h). Each epoch's walk has every
// record once.
//
//   sequential   0, 1, 2, ...
//   global       a keyed permutation of all records
//   block        blocks of neighbouring records, the blocks permuted
//
// Source: docs/order.md "The sequence".
#ifndef LMDBIO_ORDER_EPOCH_WALK_H_
#define LMDBIO_ORDER_EPOCH_WALK_H_

#include <cstdint>
#include <span>

#include "lmdbio/base/types.h"
#include "lmdbio/order/keyed_permutation.h"
#include "lmdbio/order/order_options.h"

namespace lmdbio::order {

struct WalkOptions {
  uint64_t record_count = 1;
  Order order = Order::kSequential;
  Shuffle shuffle = Shuffle::kGlobal;  // where the order is one
  uint64_t seed = 0;
  uint64_t block_records = 1;  // with Shuffle::kBlock
};

// Neighbouring records that follow each other in the walk.
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

  // The record at place k of the walk, and the place of a record.
  // Requires: below record_count()
  RecordIndex RecordAt(uint64_t k) const;
  uint64_t PlaceOf(RecordIndex record) const;

  // The records at places [k, k + n) with n <= count_max: as many as are neighbours for sure.
  // Requires: k < record_count(), count_max > 0
  WalkRun RunAt(uint64_t k, uint64_t count_max) const;

  // The records at places [k, k + records.size()).
  // Requires: they lie within the walk
  void Fill(uint64_t k, std::span<RecordIndex> records) const;

 private:
  enum class Kind { kSequential, kGlobal, kBlock };
  // A place of a walk of blocks: which block it is in, counted in the walk, and how far.
  struct InBlock {
    uint64_t turn = 0;
    uint64_t into = 0;
  };
  InBlock Find(uint64_t k) const;

  WalkOptions options_;
  uint64_t epoch_;
  Kind kind_;
  KeyedPermutation permutation_;  // of records, or of blocks
  // The last block may be shorter than the others; these are walked over as if it were not.
  uint64_t short_turn_ = 0;  // when it comes
  uint64_t missing_ = 0;     // what it lacks
};

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_EPOCH_WALK_H_
