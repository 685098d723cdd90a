// lmdbio/order/schedule.h - which record stands where in the stream: plain arithmetic.
//
//   position   0, 1, 2, ... of the endless global sequence
//   batch      consecutive positions
//   slot       of a batch: counted from its first position
//   share      the positions of a batch that are one rank's
//   walk       what is read: the records in an epoch's order (epoch_walk.h), epoch after epoch;
//              each stands in it once an epoch, and `reuse` times in the sequence
//   group      batches in a row that hold what the walk has there: a batch as it stands, or several
//              that records are dealt out to
//
// Everything here is a pure function of its arguments, the same on every rank.
//
// Source: dissertation 3.1.1 (data access pattern), 5.2.3 (one large chunk for several iterations),
// 8.4.1 (data reuse); docs/order.md "The sequence".
#ifndef LMDBIO_ORDER_SCHEDULE_H_
#define LMDBIO_ORDER_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "lmdbio/base/types.h"
#include "lmdbio/order/epoch_walk.h"
#include "lmdbio/order/keyed_permutation.h"
#include "lmdbio/order/order_options.h"

namespace lmdbio::order {

struct BatchSpan {
  uint64_t number = 0;          // 0 is the first batch of the stream
  uint64_t first_position = 0;  // in the global sequence
  uint64_t record_count = 0;
  uint64_t epoch = 0;       // of the first position
  bool ends_epoch = false;  // the last record of an epoch is among them, or is left out after them
  uint64_t pass = 0;        // how often its group's records were all handed out before it
  uint64_t full_count = 0;  // records of a batch that is not cut short; 0: as this one
};

// K batches of n records each, or one of any size, and the same again for each further pass. The
// group's i-th record of the walk goes to one slot, of one batch in each pass. Slots are dealt out
// by their number alone: so a rank's records of all batches are the same whatever the pass, and no
// position depends on the number of ranks.
struct BatchGroup {
  uint64_t first_batch = 0;     // its number
  uint64_t batch_count = 1;     // of all passes
  uint64_t first_position = 0;  // in the sequence
  uint64_t first_walk = 0;      // place in the walk
  uint64_t record_count = 0;    // of the walk
  uint64_t pass_count = 1;
  uint64_t full_count = 0;  // of a batch that is not cut short
  // Slots are filled one after the other, with neighbours in the walk, instead of batches.
  bool by_slots = false;
  bool mixes_first_pass = false;
  // Which batch of a pass gets what stands at a slot of another; tweaked by slot and pass.
  std::optional<KeyedPermutation> mix;

  // K.
  uint64_t batches_per_pass() const { return batch_count / pass_count; }
  uint64_t records_per_batch() const { return record_count / batches_per_pass(); }
  // The first batch, as far as shares need it; the others are shared out alike.
  BatchSpan first_span() const {
    return {first_batch, first_position, records_per_batch(), 0, false, 0, full_count};
  }

  // Where a record comes.
  struct Place {
    uint64_t batch = 0;  // counted from the group's first
    uint64_t slot = 0;
  };

  // Where the i-th record of the walk comes in a pass, and which record comes to a place.
  // Requires: i < record_count, pass < pass_count; place in the group
  Place PlaceOf(uint64_t i, uint64_t pass) const;
  uint64_t WalkIndexOf(const Place& place) const;

  uint64_t PositionOf(const Place& place) const {
    return first_position + place.batch * records_per_batch() + place.slot;
  }
};

// Where a stream's batches begin to be counted out.
struct StreamOrigin {
  uint64_t batch = 0;     // its number
  uint64_t position = 0;  // of its first record
  friend bool operator==(const StreamOrigin&, const StreamOrigin&) = default;
};

struct ScheduleOptions {
  WalkOptions walk;
  uint64_t batch_size = 1;
  Tail tail = Tail::kWrap;
  // Batches that share a group where an epoch has so many left; 1: each is one.
  uint64_t group_batches = 1;
  uint64_t reuse = 1;  // passes
  // Where batches share groups, or are reused, an origin is the start of an epoch.
  StreamOrigin origin = {};
};

class Schedule {
 public:
  static constexpr uint64_t kReuseMax = 1000;

  // Requires: record_count > 0, batch_size > 0, and with Tail::kDrop batch_size <= record_count;
  // group_batches > 0, 0 < reuse <= kReuseMax
  explicit Schedule(const ScheduleOptions& options);

  const ScheduleOptions& options() const { return options_; }
  uint64_t record_count() const { return options_.walk.record_count; }
  uint64_t batch_size() const { return options_.batch_size; }
  uint64_t group_batches() const { return options_.group_batches; }

  // Positions of an epoch.
  uint64_t positions_per_epoch() const { return record_count() * options_.reuse; }

  // With Tail::kWrap, as many as it takes to have begun the next epoch or reached its start.
  uint64_t batches_per_epoch() const { return BaseBatchesPerEpoch() * options_.reuse; }

  // Requires (here and below): number >= options().origin.batch
  BatchSpan Batch(uint64_t number) const;

  // The group that batch `number` belongs to. Only whole batches within one epoch share one.
  BatchGroup Group(uint64_t number) const;

  // The walk of the epoch that a place in the walk belongs to, and how far into it that is.
  EpochWalk WalkOf(uint64_t walk_place) const {
    return EpochWalk(options_.walk, walk_place / record_count());
  }
  uint64_t IntoEpoch(uint64_t walk_place) const { return walk_place % record_count(); }

  // The record at `slot` of batch `number`.
  // Cost: some 100 to 200 ns; for many, ask for the group and its walk
  RecordIndex RecordAt(uint64_t number, uint64_t slot) const;

 private:
  // As if there were no passes: batch `index` from the origin on.
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

// The rank whose record stands at `position` of `batch`.
// Requires: position lies in the batch, rank_count > 0
int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count);

// How many records of `batch` are those of `rank`.
uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count);

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_SCHEDULE_H_
