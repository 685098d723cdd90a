#include "lmdbio/load/slots/slot_planner.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::load {
namespace {

// More batches would make a slot late, however small they are.
constexpr uint64_t kBatchesMax = 1024;
constexpr uint64_t kBatchesMaxScattered = 32 * kBatchesMax;

// Neighbours in the walk that lie in more pieces than this, in the mean, are none in the file.
constexpr uint64_t kStretchesOfRun = 4;
// A slot that has come so close to what it may be is full.
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

std::vector<GroupRange> HostRanges(const load::BatchGroup& group, const HostRanks& ranks) {
  std::vector<GroupRange> ranges;
  const auto local_count = static_cast<int>(ranks.local_ranks.size());
  if (local_count == ranks.rank_count) {
    AddRecords(0, group.record_count, ranges);
    return ranges;
  }
  if (ranks.share == load::Share::kRoundRobin) {
    const auto whole = static_cast<uint64_t>(ranks.rank_count);
    // One batch, handed out once: positions follow each other as the walk does.
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
  // Filled slot by slot, a rank's records of all batches lie together; else those of each batch do.
  const load::BatchSpan one = group.first_span();
  const uint64_t together = group.by_slots ? group.batches_per_pass() : 1;
  const auto count_of = [&](int rank) {
    return load::ShareCount(one, ranks.share, rank, ranks.rank_count) * together;
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

SlotPlanner::SlotPlanner(const load::Schedule& schedule, uint64_t first_batch, HostRanks ranks,
                         Locator& locator, const SlotLimits& limits)
    : schedule_(schedule),
      ranks_(std::move(ranks)),
      locator_(locator),
      limits_(limits),
      ring_(limits.wrap_bytes, limits.ring_bytes),
      next_batch_(schedule.Group(first_batch).first_batch) {}

// A range may run over the end of the epoch, even several times.
Status SlotPlanner::AddRange(const load::BatchGroup& group, const GroupRange& range,
                             PlannedSlot& slot) {
  const uint64_t end = group.first_walk + range.first + range.count;
  for (uint64_t place = end - range.count; place < end;) {
    const load::WalkRun run = RunAt(place, end - place);
    LMDBIO_TRY_VOID(locator_.Locate(run.first, run.count, slot.plan));
    place += run.count;
    ++slot.run_count;
  }
  return {};
}

// What the host needs of the group that begins with batch `number`, and where that begins.
void SlotPlanner::LookAhead(uint64_t number) {
  if (limits_.stream_batches > 0 && number >= limits_.stream_batches) return;
  const load::BatchGroup group = schedule_.Group(number);
  next_ranges_ = HostRanges(group, ranks_);
  if (next_ranges_.empty()) return locator_.Expect({}, 0);
  const GroupRange& range = next_ranges_.front();
  const load::WalkRun run = RunAt(group.first_walk + range.first, range.count);
  locator_.Expect(run.first, run.count);
}

// Neighbours from a place of the walk on.
load::WalkRun SlotPlanner::RunAt(uint64_t place, uint64_t count_max) {
  const uint64_t epoch = place / schedule_.record_count();
  if (!walk_ || walk_->epoch() != epoch) walk_ = schedule_.WalkOf(place);
  return walk_->RunAt(schedule_.IntoEpoch(place), count_max);
}

// False if the planner was stopped.
Result<bool> SlotPlanner::AddGroup(const load::BatchGroup& group, PlannedSlot& slot) {
  // A batch of many epochs would fill this process's memory with plans before it is refused.
  const load::BatchSpan first = schedule_.Batch(group.first_batch);
  const uint64_t share =
      load::ShareCount(first, ranks_.share, ranks_.local_ranks.front(), ranks_.rank_count);
  if (share > limits_.ring_bytes / sizeof(RecordEntry) / group.batch_count) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("batch {} holds {} records for one rank; make the batch smaller or the "
                            "memory budget larger",
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
    slot.entry_count += range.count * group.pass_count;
  }
  slot.groups.push_back(group);
  for (uint64_t k = 0; k < group.batch_count; ++k) {
    slot.batches.push_back(schedule_.Batch(group.first_batch + k));
  }
  LMDBIO_TRY_VOID(locator_.EndGroup());
  LookAhead(group.first_batch + group.batch_count);
  return true;
}

// Shares, entries and pages, one behind the other.
Status SlotPlanner::Place(PlannedSlot& slot) {
  const uint64_t shares_bytes =
      slot.batches.size() * ranks_.local_ranks.size() * sizeof(BatchShare);
  const uint64_t entries_at = AlignUp(shares_bytes, alignof(RecordEntry));
  const uint64_t pages_at =
      AlignUp(entries_at + slot.entry_count * sizeof(RecordEntry), load::kStretchAlignBytes);
  const uint64_t size_bytes = pages_at + slot.plan.buffer_bytes();
  const std::optional<WindowReservation> place = ring_.Allocate(size_bytes);
  if (!place) {
    const bool is_group = slot.groups.front().batch_count > 1;
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} {} needs {} bytes of this host's memory, the budget leaves {}; "
                            "make the {} smaller or the memory budget larger",
                            is_group ? "the group that begins with batch" : "batch",
                            slot.batches.front().number, size_bytes, limits_.ring_bytes,
                            is_group ? "group" : "batch"));
  }
  const uint64_t reused =
      slot.number >= Window::kSlotsMax ? slot.number - Window::kSlotsMax + 1 : 0;
  slot.free_after = std::max(place->free_after, reused);
  const bool is_elsewhere = limits_.is_in_place || slot.is_kept;
  slot.pages_at = is_elsewhere ? 0 : place->at + pages_at;
  slot.head = {slot.batches.front().number, slot.batches.size(), place->at, place->at + entries_at,
               !is_elsewhere};
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
    const load::BatchGroup group = schedule_.Group(next_batch_);
    LMDBIO_TRY(const bool added, AddGroup(group, slot));
    if (!added) {
      slot.batches.clear();
      return false;
    }
    next_batch_ += group.batch_count;
    // A host without a record in any batch must not wait for bytes that never come.
    if (slot.batches.size() >= batches_max) return slot.batches.size() < kBatchesMaxScattered;
  }
  return true;
}

bool SlotPlanner::IsScattered(const PlannedSlot& slot, uint64_t stretch_count) const {
  const bool is_apart =
      limits_.expects_scattered || stretch_count > kStretchesOfRun * slot.run_count;
  return is_apart && slot.plan.pending_bytes() < stretch_count * kScatteredBelowBytes;
}

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
      ring_.WrapAt(limits_.ring_bytes);
      growth_ = std::min(growth_ + 1, 16U);
    }
  }
  slot.is_kept ? slot.plan.FinishInFile() : slot.plan.Finish();
  slot.number = next_slot_++;
  LMDBIO_TRY_VOID(Place(slot));
  return true;
}

}  // namespace lmdbio::load
