#include "lmdbio/load/slots/slot_planner.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::load {
namespace {

// The largest number of batches of a slot. More batches would delay the slot, even small ones.
constexpr uint64_t kBatchesMax = 1024;
constexpr uint64_t kBatchesMaxScattered = 32 * kBatchesMax;

// A slot with more extents per run than this, on average, is scattered.
constexpr uint64_t kExtentsOfRun = 4;
// In place, a slot takes memory for its shares and entries alone. So many of the largest slots
// share memory that stays in the caches of the processor: one in use, one ready and two to be
// filled.
constexpr uint64_t kSlotsInPlace = 4;
// A slot with this share of its largest size is full.
constexpr double kFullShare = 0.97;

void AddRecords(uint64_t first, uint64_t count, std::vector<GroupRange>& ranges) {
  if (count == 0) return;
  if (!ranges.empty() && ranges.back().first + ranges.back().count == first) {
    ranges.back().count += count;
  } else {
    ranges.push_back({0, first, count});
  }
}

}  // namespace

// A group lists its records batch by batch (or, with by_slots, rank by rank over all batches of a
// pass). Within each such list the shares of the ranks follow each other, so the host's ranges are
// found by adding up the shares of the ranks before each local one.
std::vector<GroupRange> HostRanges(const BatchGroup& group, const HostRanks& ranks) {
  std::vector<GroupRange> ranges;
  const auto local_count = static_cast<int>(ranks.local_ranks.size());
  if (local_count == ranks.rank_count) {
    AddRecords(0, group.record_count, ranges);
    return ranges;
  }
  if (ranks.share == Share::kRoundRobin) {
    const auto whole = static_cast<uint64_t>(ranks.rank_count);
    // The group is one batch, so positions and records are in the same order.
    const uint64_t begin = group.first_position;
    const uint64_t end = begin + group.record_count;
    for (uint64_t round = begin / whole * whole; round < end; round += whole) {
      for (const int rank : ranks.local_ranks) {
        const uint64_t position = round + static_cast<uint64_t>(rank);
        if (position >= begin && position < end) AddRecords(position - begin, 1, ranges);
      }
    }
    return ranges;
  }
  // The records of a rank that lie together: those of all batches of a pass, or of one batch.
  const BatchSpan one = group.first_span();
  const uint64_t together = group.by_slots ? group.batches_per_pass() : 1;
  const auto count_of = [&](int rank) {
    return ShareCount(one, ranks.share, rank, ranks.rank_count) * together;
  };
  for (uint64_t base = 0; base < group.record_count; base += one.record_count * together) {
    uint64_t first = base;
    int next_rank = 0;
    for (const int rank : ranks.local_ranks) {
      for (; next_rank < rank; ++next_rank) first += count_of(next_rank);
      const uint64_t count = count_of(rank);
      AddRecords(first, count, ranges);
      first += count;
      next_rank = rank + 1;
    }
  }
  return ranges;
}

SlotPlanner::SlotPlanner(const Schedule& schedule, uint64_t first_batch, HostRanks ranks,
                         Locator& locator, const SlotLimits& limits)
    : schedule_(schedule),
      ranks_(std::move(ranks)),
      locator_(locator),
      limits_(limits),
      allocator_(limits.wrap_bytes, limits.ring_bytes),
      next_batch_(schedule.Group(first_batch).first_batch) {}

// Plans the records of one range. The range may cross the end of the epoch, even several times.
Status SlotPlanner::AddRange(const BatchGroup& group, const GroupRange& range, PlannedSlot& slot) {
  const uint64_t end = group.first_walk + range.first + range.count;
  for (uint64_t at = end - range.count; at < end;) {
    const WalkRun run = RunAt(at, end - at);
    LMDBIO_TRY_VOID(locator_.Locate(run.first, run.count, slot.plan));
    at += run.count;
    ++slot.run_count;
  }
  return {};
}

// Finds the host's ranges in the group that begins with batch `number`, and announces the first
// records to the locator, so that it can fetch pages while the present group is read.
void SlotPlanner::LookAhead(uint64_t number) {
  if (limits_.stream_batches > 0 && number >= limits_.stream_batches) return;
  const BatchGroup group = schedule_.Group(number);
  next_ranges_ = HostRanges(group, ranks_);
  if (next_ranges_.empty()) return locator_.Expect({}, 0);
  const GroupRange& range = next_ranges_.front();
  const WalkRun run = RunAt(group.first_walk + range.first, range.count);
  locator_.Expect(run.first, run.count);
}

// The consecutive records from walk position `at` on, at most `count_max`.
WalkRun SlotPlanner::RunAt(uint64_t at, uint64_t count_max) {
  const uint64_t epoch = at / schedule_.record_count();
  if (!walk_ || walk_->epoch() != epoch) walk_ = schedule_.WalkOf(at);
  return walk_->RunAt(schedule_.IntoEpoch(at), count_max);
}

// Adds the host's records of a group to the slot. False if the planner was stopped.
Result<bool> SlotPlanner::AddGroup(const BatchGroup& group, PlannedSlot& slot) {
  // Check first: the plan of a batch of many epochs would fill the memory of this process.
  const BatchSpan first = schedule_.Batch(group.first_batch);
  const uint64_t share =
      ShareCount(first, ranks_.share, ranks_.local_ranks.front(), ranks_.rank_count);
  if (share > limits_.ring_bytes / sizeof(RecordEntry) / limits_.field_count / group.batch_count) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("batch {} has {} records for one rank, more than memory_budget_bytes "
                            "allows; reduce global_batch_size or raise memory_budget_bytes",
                            group.first_batch, share));
  }
  if (!has_looked_ahead_) LookAhead(group.first_batch);
  has_looked_ahead_ = true;
  LMDBIO_TRY(const bool may_go_on, locator_.BeginGroup(group));
  if (!may_go_on) return false;
  for (GroupRange& range : next_ranges_) {
    range.group_index = slot.groups.size();
    LMDBIO_TRY_VOID(AddRange(group, range, slot));
    slot.ranges.push_back(range);
    slot.entry_count += range.count * group.pass_count * limits_.field_count;
  }
  slot.groups.push_back(group);
  for (uint64_t k = 0; k < group.batch_count; ++k) {
    slot.batches.push_back(schedule_.Batch(group.first_batch + k));
  }
  LMDBIO_TRY_VOID(locator_.EndGroup());
  LookAhead(group.first_batch + group.batch_count);
  return true;
}

// Reserves window memory for the shares, the entries and the pages, one behind the other. A slot
// whose pages lie elsewhere reserves memory for shares and entries only.
Status SlotPlanner::Place(PlannedSlot& slot) {
  const uint64_t shares_bytes =
      slot.batches.size() * ranks_.local_ranks.size() * sizeof(BatchShare);
  const uint64_t entries_at = AlignUp(shares_bytes, alignof(RecordEntry));
  const uint64_t pages_at =
      AlignUp(entries_at + slot.entry_count * sizeof(RecordEntry), kStretchAlignBytes);
  const uint64_t size_bytes = pages_at + slot.plan.buffer_bytes();
  if (limits_.is_in_place) {
    largest_bytes_ = std::max(largest_bytes_, size_bytes);
    allocator_.WrapAt(std::min(limits_.wrap_bytes, kSlotsInPlace * largest_bytes_));
  }
  const std::optional<WindowReservation> reserved = allocator_.Allocate(size_bytes);
  if (!reserved) {
    const bool is_group = slot.groups.front().batch_count > 1;
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} {} needs {} bytes of this host's memory, but memory_budget_bytes "
                            "leaves {}; reduce {} or raise memory_budget_bytes",
                            is_group ? "the group that begins with batch" : "batch",
                            slot.batches.front().number, size_bytes, limits_.ring_bytes,
                            is_group ? "group_batches" : "global_batch_size"));
  }
  // The window has kSlotsMax slot states, which slots use in turn. So the slot that had the state
  // before must be released as well.
  const uint64_t reused =
      slot.number >= Window::kSlotsMax ? slot.number - Window::kSlotsMax + 1 : 0;
  slot.free_after = std::max(reserved->free_after, reused);
  const bool is_elsewhere = limits_.is_in_place || slot.is_kept;
  slot.pages_at = is_elsewhere ? 0 : reserved->at + pages_at;
  slot.reserved = {reserved->at, size_bytes};
  slot.head = {slot.batches.front().number, slot.batches.size(), reserved->at,
               reserved->at + entries_at, !is_elsewhere};
  return {};
}

// A scattered slot grows no further once it has as many records as the database, or as a plan may
// have. Its bytes alone do not bound it: pages that several records share count once, so the bytes
// of a small database never reach the target.
bool SlotPlanner::HasEnoughRecords(const PlannedSlot& slot) const {
  if (!slot.is_scattered) return false;
  return slot.plan.values().size() >= std::min(schedule_.record_count(), kScatteredRecordsMax);
}

// Fills the slot to about `target_bytes`. True if more would fit; false at the end of the stream,
// and if there are enough records, groups or batches; `slot` is empty if the planner was stopped.
Result<bool> SlotPlanner::AddGroupsUpTo(uint64_t target_bytes, PlannedSlot& slot) {
  const uint64_t batches_max = slot.is_scattered ? kBatchesMaxScattered : kBatchesMax;
  const auto size_bytes = [&] {
    return slot.plan.pending_bytes() +
           (slot.is_scattered ? slot.entry_count * sizeof(RecordEntry) : 0);
  };
  while (slot.batches.empty() || size_bytes() < target_bytes) {
    if (HasEnoughRecords(slot)) return false;
    if (limits_.stream_batches > 0 && next_batch_ >= limits_.stream_batches) return false;
    if (limits_.group_count_max > 0 && slot.groups.size() == limits_.group_count_max) return false;
    const BatchGroup group = schedule_.Group(next_batch_);
    LMDBIO_TRY(const bool added, AddGroup(group, slot));
    if (!added) {
      slot.batches.clear();
      return false;
    }
    next_batch_ += group.batch_count;
    // A host may have no record in any batch, so bytes alone do not end the loop.
    if (slot.batches.size() >= batches_max) return slot.batches.size() < kBatchesMaxScattered;
  }
  return true;
}

// Scattered: consecutive records are not neighbours in the file, and their extents are short.
bool SlotPlanner::IsScattered(const PlannedSlot& slot, uint64_t extent_count) const {
  const bool is_apart = limits_.expects_scattered || extent_count > kExtentsOfRun * slot.run_count;
  return is_apart && slot.plan.pending_bytes() < extent_count * kScatteredBelowBytes;
}

// A slot takes groups up to the target size. If its records turn out to be scattered, it grows:
// each scattered slot may be twice as large as the one before, so that the first one is still
// early. From then on reservations use all of the window memory, because slots are large.
Result<bool> SlotPlanner::Next(PlannedSlot& slot) {
  slot.plan.Clear();
  slot.batches.clear();
  slot.groups.clear();
  slot.ranges.clear();
  slot.run_count = 0;
  slot.entry_count = 0;
  slot.is_scattered = false;
  LMDBIO_TRY(bool goes_on, AddGroupsUpTo(limits_.target_bytes, slot));
  if (slot.batches.empty()) return false;
  slot.is_kept = limits_.keeping == FileCaching::kAll;
  if (limits_.scattered_bytes_max > 0 && !slot.is_kept) {
    slot.is_scattered = IsScattered(slot, slot.plan.Settle());
    slot.is_kept = slot.is_scattered && limits_.keeping == FileCaching::kScattered;
  }
  if (limits_.scattered_bytes_max > limits_.target_bytes && !slot.is_kept) {
    const uint64_t most = std::min(limits_.scattered_bytes_max, limits_.target_bytes << growth_);
    while (slot.is_scattered && goes_on) {
      LMDBIO_TRY(goes_on, AddGroupsUpTo(most, slot));
      if (slot.batches.empty()) return false;
      slot.plan.Settle();
      const uint64_t bytes = slot.plan.pending_bytes() + slot.entry_count * sizeof(RecordEntry);
      if (static_cast<double>(bytes) >= kFullShare * static_cast<double>(most)) break;
    }
    if (slot.is_scattered) {
      allocator_.WrapAt(limits_.ring_bytes);
      growth_ = std::min(growth_ + 1, 16U);
    }
  }
  slot.is_kept ? slot.plan.FinishInFile() : slot.plan.Finish();
  slot.number = next_slot_++;
  LMDBIO_TRY_VOID(Place(slot));
  return true;
}

}  // namespace lmdbio::load
