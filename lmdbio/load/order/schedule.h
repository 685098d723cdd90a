// lmdbio/load/order/schedule.h - maps positions of the stream to records, batches and ranks.
//
//   position   0, 1, 2, ... of the endless global sequence
//   batch      consecutive positions
//   slot       a position within a batch, counted from its first position
//   share      the positions of a batch that one rank gets
//   walk       the records in the order in which they are read: the epoch order (epoch_walk.h),
//              epoch after epoch. A record occurs once in the walk of an epoch, and `reuse` times
//              in the sequence
//   group      consecutive batches that hold a contiguous part of the walk: one batch, or several
//              among which the records are dealt out
//
// All functions are pure: the same arguments give the same result on every rank.
//
// Source: dissertation 3.1.1 (data access pattern), 5.2.3 (one large chunk for several iterations),
// 8.4.1 (data reuse); docs/order.md "The sequence".
#ifndef LMDBIO_LOAD_ORDER_SCHEDULE_H_
#define LMDBIO_LOAD_ORDER_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "lmdbio/base/types.h"
#include "lmdbio/load/order/epoch_walk.h"
#include "lmdbio/load/order/keyed_permutation.h"
#include "lmdbio/load/order/order_options.h"

namespace lmdbio::load {

struct BatchSpan {
  uint64_t number = 0;          // 0 is the first batch of the stream
  uint64_t first_position = 0;  // in the global sequence
  uint64_t record_count = 0;
  uint64_t epoch = 0;       // of the first position
  bool ends_epoch = false;  // contains the last record of an epoch, or the rest is dropped after it
  uint64_t pass = 0;        // number of earlier passes over the records of its group
  uint64_t full_count = 0;  // records of a batch of full size; 0: record_count
};

// A batch group: K batches of n records each, or one of any size, repeated for each further pass.
//
// The i-th record of the group has one slot, which is the same in all passes. In each pass it goes
// to one of the K batches at that slot. As shares are ranges or residues of slots, a rank gets the
// same records in every pass, and the positions do not depend on the number of ranks.
struct BatchGroup {
  uint64_t first_batch = 0;     // its number
  uint64_t batch_count = 1;     // of all passes
  uint64_t first_position = 0;  // in the sequence
  uint64_t first_walk = 0;      // index in the walk
  uint64_t record_count = 0;    // of the walk
  uint64_t pass_count = 1;
  uint64_t full_count = 0;  // records of a batch of full size
  // True: neighbours in the walk fill the same slot of all K batches, then the next slot.
  // False: they fill one batch after the other.
  bool by_slots = false;
  bool mixes_first_pass = false;
  // Permutes the K batches, separately for each slot and pass.
  std::optional<KeyedPermutation> mix;

  // K.
  uint64_t batches_per_pass() const { return batch_count / pass_count; }
  uint64_t records_per_batch() const { return record_count / batches_per_pass(); }
  // The first batch, with the fields that shares depend on. All batches of the group have the same
  // shares.
  BatchSpan first_span() const {
    return {first_batch, first_position, records_per_batch(), 0, false, 0, full_count};
  }

  // A batch and a slot within a group.
  struct BatchPosition {
    uint64_t batch = 0;  // counted from the group's first
    uint64_t slot = 0;
  };

  // The place of the group's i-th record in a pass, and the index i of the record at a place.
  // Requires: i < record_count, pass < pass_count; place in the group
  BatchPosition PlaceOf(uint64_t i, uint64_t pass) const {
    // No division for a group of one batch: this is called for each record.
    return batch_count == 1 ? BatchPosition{0, i} : PlaceOfSeveral(i, pass);
  }
  uint64_t WalkIndexOf(const BatchPosition& place) const;

  uint64_t PositionOf(const BatchPosition& place) const {
    if (batch_count == 1) return first_position + place.slot;
    return first_position + place.batch * records_per_batch() + place.slot;
  }

 private:
  BatchPosition PlaceOfSeveral(uint64_t i, uint64_t pass) const;
};

// The position from which the batches of a stream are cut.
struct StreamOrigin {
  uint64_t batch = 0;     // its number
  uint64_t position = 0;  // of its first record
  friend bool operator==(const StreamOrigin&, const StreamOrigin&) = default;
};

struct ScheduleOptions {
  WalkOptions walk;
  uint64_t batch_size = 1;
  Tail tail = Tail::kWrap;
  // Batches of a group; the last group of an epoch may have fewer. 1: each batch is a group.
  uint64_t group_batches = 1;
  uint64_t reuse = 1;  // passes
  // With group_batches > 1 or reuse > 1 it must be the start of an epoch.
  StreamOrigin origin = {};
};

class Schedule {
 public:
  static constexpr uint64_t kReuseMax = 1000;

  // Requires: record_count > 0, batch_size > 0, and with Tail::kDrop batch_size <= record_count;
  //           group_batches > 0, 0 < reuse <= kReuseMax
  explicit Schedule(const ScheduleOptions& options);

  const ScheduleOptions& options() const { return options_; }
  uint64_t record_count() const { return options_.walk.record_count; }
  uint64_t batch_size() const { return options_.batch_size; }
  uint64_t group_batches() const { return options_.group_batches; }

  // Positions of an epoch.
  uint64_t positions_per_epoch() const { return record_count() * options_.reuse; }

  // With Tail::kWrap, the last of them may begin in this epoch and end in the next.
  uint64_t batches_per_epoch() const { return BaseBatchesPerEpoch() * options_.reuse; }

  // Requires (here and below): number >= options().origin.batch
  BatchSpan Batch(uint64_t number) const;

  // The group of batch `number`. Only batches of full size within one epoch share a group.
  BatchGroup Group(uint64_t number) const;

  // The epoch order that contains an index of the walk, and the offset of the index in it.
  EpochWalk WalkOf(uint64_t walk_place) const {
    return EpochWalk(options_.walk, walk_place / record_count());
  }
  uint64_t IntoEpoch(uint64_t walk_place) const { return walk_place % record_count(); }

  // The record at `slot` of batch `number`.
  // Cost: about 100 to 200 ns; for many records, use Group and WalkOf
  RecordIndex RecordAt(uint64_t number, uint64_t slot) const;

 private:
  // Batch `index` from the origin on, with reuse = 1.
  struct BaseBatch {
    uint64_t first_walk = 0;
    uint64_t record_count = 0;
    uint64_t epoch = 0;
    bool ends_epoch = false;
  };
  struct BaseGroup {
    uint64_t first = 0;
    uint64_t count = 1;
  };
  uint64_t BaseBatchesPerEpoch() const;
  uint64_t BatchesIn(uint64_t records) const;
  BaseBatch Base(uint64_t index) const;
  BaseGroup GroupOfBase(uint64_t index) const;

  ScheduleOptions options_;
};

// A rank, and consecutive positions of a batch that all belong to it.
struct OwnedPositions {
  int rank = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  bool Contains(uint64_t position) const { return begin <= position && position < end; }
};

// The rank that gets `position` of `batch`. OwnedAround also tells its neighbours there: the rank's
// whole share with Share::kBlock and Share::kFill, `position` alone with Share::kRoundRobin.
// Requires: position lies in the batch, rank_count > 0
OwnedPositions OwnedAround(const BatchSpan& batch, uint64_t position, Share share, int rank_count);
int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count);

// The number of records of `batch` in the share of `rank`.
uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_ORDER_SCHEDULE_H_
