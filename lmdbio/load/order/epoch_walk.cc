#include "lmdbio/load/order/epoch_walk.h"

#include <algorithm>

#include "lmdbio/base/check.h"

namespace lmdbio::load {
namespace {

// The purpose of a permutation. Each purpose derives its own keys.
constexpr uint64_t kPurposeRecords = 1;
constexpr uint64_t kPurposeBlocks = 2;

uint64_t UnitCount(const WalkOptions& options, bool is_block) {
  if (!is_block) return options.record_count;
  return (options.record_count - 1) / options.block_records + 1;
}

}  // namespace

EpochWalk::EpochWalk(const WalkOptions& options, uint64_t epoch)
    : options_(options),
      epoch_(epoch),
      kind_(options.order != Order::kShuffle     ? WalkKind::kSequential
            : options.shuffle == Shuffle::kBlock ? WalkKind::kBlock
                                                 : WalkKind::kGlobal),
      permutation_(UnitCount(options, kind_ == WalkKind::kBlock),
                   DeriveKey(DeriveKey(options.seed, epoch),
                             kind_ == WalkKind::kBlock ? kPurposeBlocks : kPurposeRecords)) {
  // Only the last block of the database can be short. Its turn is the one number that Find and
  // PlaceOf need to know about it.
  if (kind_ != WalkKind::kBlock) return;
  const uint64_t blocks = permutation_.size();
  missing_ = blocks * options_.block_records - options_.record_count;
  short_turn_ = permutation_.Inverse(blocks - 1);
}

// The permutation moves the short last block of the database to any turn. To keep a division enough
// for the lookup, an index is first converted to a walk in which all blocks have the full size: an
// index behind the short block grows by the number of missing records.
EpochWalk::InBlock EpochWalk::Find(uint64_t k) const {
  const uint64_t size = options_.block_records;
  const uint64_t short_end = (short_turn_ + 1) * size - missing_;
  const uint64_t full = k < short_end ? k : k + missing_;
  return {full / size, full % size};
}

RecordIndex EpochWalk::RecordAt(uint64_t k) const {
  LMDBIO_DCHECK(k < record_count());
  switch (kind_) {
    case WalkKind::kGlobal:
      return {permutation_(k)};
    case WalkKind::kBlock: {
      const InBlock place = Find(k);
      return {permutation_(place.turn) * options_.block_records + place.into};
    }
    case WalkKind::kSequential:
      break;
  }
  return {k};
}

uint64_t EpochWalk::PlaceOf(RecordIndex record) const {
  LMDBIO_DCHECK(record.value < record_count());
  switch (kind_) {
    case WalkKind::kGlobal:
      return permutation_.Inverse(record.value);
    case WalkKind::kBlock: {
      const uint64_t size = options_.block_records;
      const uint64_t turn = permutation_.Inverse(record.value / size);
      // The reverse of Find: blocks behind the short one begin earlier by the missing records.
      const uint64_t full = turn * size + record.value % size;
      return turn > short_turn_ ? full - missing_ : full;
    }
    case WalkKind::kSequential:
      break;
  }
  return record.value;
}

WalkRun EpochWalk::RunAt(uint64_t k, uint64_t count_max) const {
  const RecordIndex first = RecordAt(k);
  switch (kind_) {
    case WalkKind::kGlobal:
      return {first, 1};
    case WalkKind::kBlock: {
      const uint64_t size = options_.block_records;
      // A run ends with its block, because the next block of the walk lies elsewhere.
      const uint64_t block_end = std::min(record_count(), (first.value / size + 1) * size);
      return {first, std::min(count_max, block_end - first.value)};
    }
    case WalkKind::kSequential:
      break;
  }
  return {first, std::min(count_max, record_count() - k)};
}

void EpochWalk::Fill(uint64_t k, std::span<RecordIndex> records) const {
  // A global shuffle has no runs, so each record is computed by itself.
  if (kind_ == WalkKind::kGlobal) {
    for (RecordIndex& record : records) record = {permutation_(k++)};
    return;
  }
  for (size_t done = 0; done < records.size();) {
    const WalkRun run = RunAt(k + done, records.size() - done);
    for (uint64_t i = 0; i < run.count; ++i) records[done++] = {run.first.value + i};
  }
}

}  // namespace lmdbio::load
