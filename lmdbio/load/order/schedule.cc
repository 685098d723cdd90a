#include "lmdbio/load/order/schedule.h"

#include <algorithm>

#include "lmdbio/base/check.h"

namespace lmdbio::load {
namespace {

// Continues the purposes of epoch_walk.cc.
constexpr uint64_t kPurposeGroups = 3;

// One number for each pair of slot and pass: a pass is at most kReuseMax.
uint64_t MixTweak(uint64_t slot, uint64_t pass) { return slot * (Schedule::kReuseMax + 1) + pass; }

// n * part / whole without overflow: a batch may be as large as a database.
uint64_t PartOf(uint64_t n, int part, int whole) {
  const auto p = static_cast<uint64_t>(part);
  const auto w = static_cast<uint64_t>(whole);
  return n / w * p + n % w * p / w;
}

// The number of records by which the batch is divided into shares: that of a full batch with kFill.
uint64_t SharedCount(const BatchSpan& batch, Share share) {
  const bool fills = share == Share::kFill && batch.full_count > batch.record_count;
  return fills ? batch.full_count : batch.record_count;
}

}  // namespace

// The slot of record i is fixed; only its batch depends on the pass. With by_slots, neighbours in
// the walk fill slot 0 of all batches, then slot 1, and so on; otherwise they fill batch after
// batch. In mixed passes the batches of each slot are permuted. The permutation is tweaked by slot
// and pass, so no table is needed, and WalkIndexOf inverts it.
BatchGroup::BatchPosition BatchGroup::PlaceOfSeveral(uint64_t i, uint64_t pass) const {
  const uint64_t per_pass = batches_per_pass();
  if (per_pass == 1) return {pass, i};
  const uint64_t per_batch = records_per_batch();
  const uint64_t slot = by_slots ? i / per_pass : i % per_batch;
  uint64_t batch = by_slots ? i % per_pass : i / per_batch;
  if (pass > 0 || mixes_first_pass) batch = mix->Tweaked(MixTweak(slot, pass), batch);
  return {pass * per_pass + batch, slot};
}

uint64_t BatchGroup::WalkIndexOf(const BatchPosition& place) const {
  const uint64_t per_pass = batches_per_pass();
  if (per_pass == 1) return place.slot;
  const uint64_t pass = place.batch / per_pass;
  uint64_t batch = place.batch % per_pass;
  if (pass > 0 || mixes_first_pass) {
    batch = mix->TweakedInverse(MixTweak(place.slot, pass), batch);
  }
  return by_slots ? place.slot * per_pass + batch : batch * records_per_batch() + place.slot;
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  LMDBIO_CHECK(options.walk.record_count > 0 && options.batch_size > 0);
  LMDBIO_CHECK(options.group_batches > 0 && options.reuse > 0 && options.reuse <= kReuseMax);
  LMDBIO_CHECK((options.group_batches == 1 && options.reuse == 1) ||
               options.origin.position % positions_per_epoch() == 0);
}

uint64_t Schedule::BatchesIn(uint64_t records) const {
  const uint64_t whole = records / options_.batch_size;
  return options_.tail == Tail::kDrop || records % options_.batch_size == 0 ? whole : whole + 1;
}

uint64_t Schedule::BaseBatchesPerEpoch() const { return BatchesIn(record_count()); }

// With kWrap, batches are cut from one endless walk. With kShort and kDrop, each epoch is cut anew;
// all epochs after the first have the same number of batches, so a division finds the epoch.
Schedule::BaseBatch Schedule::Base(uint64_t index) const {
  const uint64_t n = record_count();
  const uint64_t size = options_.batch_size;
  uint64_t first = options_.origin.position / options_.reuse;
  if (options_.tail == Tail::kWrap) {
    first += index * size;
    return {first, size, first / n, (first + size) / n != first / n};
  }
  // The origin may be inside an epoch, so the first epoch may have fewer batches.
  uint64_t batches = BatchesIn(n - first % n);
  if (index >= batches) {
    index -= batches;
    batches = BaseBatchesPerEpoch();
    first = (first / n + 1 + index / batches) * n;
    index %= batches;
  }
  const uint64_t epoch = first / n;
  first += index * size;
  return {first, std::min(size, (epoch + 1) * n - first), epoch, index + 1 == batches};
}

// Groups are counted from the start of the epoch: batches 0 to G - 1 of an epoch are the first
// group, and so on. The last group takes the full batches that are left; a short batch, or one that
// continues in the next epoch, is a group of its own.
Schedule::BaseGroup Schedule::GroupOfBase(uint64_t index) const {
  if (options_.group_batches == 1) return {index, 1};
  const BaseBatch batch = Base(index);
  const uint64_t into = batch.first_walk - batch.epoch * record_count();
  // Full batches of this epoch: before this batch, and from this batch on.
  const uint64_t before = into / options_.batch_size;
  const uint64_t left = (record_count() - into) / options_.batch_size;
  if (left == 0) return {index, 1};
  const uint64_t in_group = before % options_.group_batches;
  return {index - in_group, std::min(options_.group_batches, in_group + left)};
}

BatchGroup Schedule::Group(uint64_t number) const {
  // A group of c batches takes c * reuse consecutive numbers. So the quotient need not be the batch
  // itself, but it is a batch of the same group.
  const uint64_t base_index = (number - options_.origin.batch) / options_.reuse;
  const BaseGroup base = GroupOfBase(base_index);
  const BaseBatch first = Base(base.first);
  BatchGroup group;
  group.first_batch = options_.origin.batch + base.first * options_.reuse;
  group.batch_count = base.count * options_.reuse;
  group.first_walk = first.first_walk;
  group.first_position = first.first_walk * options_.reuse;
  group.record_count = first.record_count * base.count;
  group.pass_count = options_.reuse;
  group.full_count = options_.batch_size;
  // A group of one batch has nothing to mix: each pass repeats the batch.
  if (base.count == 1) return group;
  const WalkOptions& walk = options_.walk;
  const bool is_block = ShufflesBlocks(walk.order, walk.shuffle);
  group.by_slots = is_block || walk.order == Order::kChunked;
  group.mixes_first_pass = is_block;
  if (is_block || options_.reuse > 1) {
    // The walk is endless, so its index tells the groups of different epochs apart.
    const uint64_t key = DeriveKey(DeriveKey(walk.seed, group.first_walk), kPurposeGroups);
    group.mix.emplace(base.count, key);
  }
  return group;
}

BatchSpan Schedule::Batch(uint64_t number) const {
  LMDBIO_DCHECK(number >= options_.origin.batch);
  const BatchGroup group = Group(number);
  const uint64_t index = number - group.first_batch;
  const uint64_t per_pass = group.batches_per_pass();
  const uint64_t base_first = (group.first_batch - options_.origin.batch) / options_.reuse;
  const BaseBatch base = Base(base_first + index % per_pass);
  BatchSpan batch;
  batch.number = number;
  batch.first_position = group.PositionOf({index, 0});
  batch.record_count = base.record_count;
  batch.epoch = base.epoch;
  batch.pass = index / per_pass;
  // An epoch ends with the last pass over its last group.
  batch.ends_epoch = base.ends_epoch && batch.pass + 1 == group.pass_count;
  batch.full_count = options_.batch_size;
  return batch;
}

// The three steps of the sequence: number -> group, slot -> index in the walk, index -> record.
RecordIndex Schedule::RecordAt(uint64_t number, uint64_t slot) const {
  const BatchGroup group = Group(number);
  const uint64_t place = group.first_walk + group.WalkIndexOf({number - group.first_batch, slot});
  return WalkOf(place).RecordAt(IntoEpoch(place));
}

int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  if (share == Share::kRoundRobin) return static_cast<int>(position % ranks);
  // The rank r with PartOf(n, r) <= into < PartOf(n, r + 1), searched from a near guess.
  const uint64_t n = SharedCount(batch, share);
  const uint64_t into = position - batch.first_position;
  int rank = static_cast<int>(std::min(ranks - 1, into / std::max<uint64_t>(1, n / ranks)));
  while (PartOf(n, rank, rank_count) > into) --rank;
  while (PartOf(n, rank + 1, rank_count) <= into) ++rank;
  return rank;
}

OwnedPositions OwnedAround(const BatchSpan& batch, uint64_t position, Share share, int rank_count) {
  const int rank = OwnerOf(batch, position, share, rank_count);
  if (share == Share::kRoundRobin) return {rank, position, position + 1};
  const uint64_t n = SharedCount(batch, share);
  const uint64_t end = std::min(batch.record_count, PartOf(n, rank + 1, rank_count));
  return {rank, batch.first_position + PartOf(n, rank, rank_count), batch.first_position + end};
}

uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count) {
  if (share != Share::kRoundRobin) {
    const uint64_t n = SharedCount(batch, share);
    return std::min(batch.record_count, PartOf(n, rank + 1, rank_count)) -
           std::min(batch.record_count, PartOf(n, rank, rank_count));
  }
  const auto ranks = static_cast<uint64_t>(rank_count);
  const auto r = static_cast<uint64_t>(rank);
  // Positions below `end` that are r modulo P.
  const auto below = [&](uint64_t end) { return end / ranks + (end % ranks > r ? 1 : 0); };
  return below(batch.first_position + batch.record_count) - below(batch.first_position);
}

}  // namespace lmdbio::load
