#include "lmdbio/loader/slot_planner.h"

#include <algorithm>

#include <fmt/format.h>

namespace lmdbio::loader {
namespace {

// More batches would make a slot late, however small they are.
constexpr uint64_t kBatchesMax = 1024;

constexpr uint64_t AlignUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

void AddPositions(uint64_t first, uint64_t count, std::vector<PositionRange>& ranges) {
  if (count == 0) return;
  if (!ranges.empty() && ranges.back().first_position + ranges.back().count == first) {
    ranges.back().count += count;
  } else {
    ranges.push_back({0, first, count});
  }
}

}  // namespace

std::vector<PositionRange> HostRanges(const BatchSpan& batch, const HostRanks& ranks) {
  std::vector<PositionRange> ranges;
  const auto local_count = static_cast<int>(ranks.local_ranks.size());
  if (local_count == ranks.rank_count) {
    AddPositions(batch.first_position, batch.record_count, ranges);
    return ranges;
  }
  const uint64_t end = batch.first_position + batch.record_count;
  if (ranks.share == Share::kRoundRobin) {
    const auto whole = static_cast<uint64_t>(ranks.rank_count);
    for (uint64_t round = batch.first_position / whole * whole; round < end; round += whole) {
      for (const int rank : ranks.local_ranks) {
        const uint64_t position = round + static_cast<uint64_t>(rank);
        if (position >= batch.first_position && position < end) AddPositions(position, 1, ranges);
      }
    }
    return ranges;
  }
  uint64_t first = batch.first_position;
  int next_rank = 0;
  for (const int rank : ranks.local_ranks) {
    for (; next_rank < rank; ++next_rank) {
      first += ShareCount(batch, ranks.share, next_rank, ranks.rank_count);
    }
    const uint64_t count = ShareCount(batch, ranks.share, rank, ranks.rank_count);
    AddPositions(first, count, ranges);
    first += count;
    next_rank = rank + 1;
  }
  return ranges;
}

SlotPlanner::SlotPlanner(const Schedule& schedule, HostRanks ranks, Locator& locator,
                         const SlotLimits& limits)
    : schedule_(schedule),
      ranks_(std::move(ranks)),
      locator_(locator),
      limits_(limits),
      ring_(limits.wrap_bytes, limits.ring_bytes) {}

// A range of positions may run over the end of the epoch, even several times.
Status SlotPlanner::AddRange(const PositionRange& range, PlannedSlot& slot) {
  for (uint64_t done = 0; done < range.count;) {
    const RecordIndex record = schedule_.Record(range.first_position + done);
    const uint64_t count = std::min(range.count - done, schedule_.record_count() - record.value);
    LMDBIO_TRY_VOID(locator_.Locate(record, count, slot.plan));
    done += count;
  }
  return {};
}

// What the host needs of the batch that comes next, and where that begins.
void SlotPlanner::LookAhead(uint64_t number) {
  if (limits_.stream_batches > 0 && number >= limits_.stream_batches) return;
  next_ranges_ = HostRanges(schedule_.Batch(number), ranks_);
  if (next_ranges_.empty()) return locator_.Expect({}, 0);
  const PositionRange& range = next_ranges_.front();
  const RecordIndex first = schedule_.Record(range.first_position);
  locator_.Expect(first, std::min(range.count, schedule_.record_count() - first.value));
}

// False if the planner was stopped.
Result<bool> SlotPlanner::AddBatch(const BatchSpan& batch, PlannedSlot& slot) {
  // A batch of many epochs would fill this process's memory with plans before it is refused.
  const uint64_t share =
      ShareCount(batch, ranks_.share, ranks_.local_ranks.front(), ranks_.rank_count);
  if (share > limits_.ring_bytes / sizeof(Entry)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("batch {} holds {} records for one rank; make the batch smaller or the "
                            "memory budget larger",
                            batch.number, share));
  }
  if (batch.number == 0) LookAhead(0);
  LMDBIO_TRY(const bool may_go_on, locator_.BeginBatch(batch));
  if (!may_go_on) return false;
  for (PositionRange& range : next_ranges_) {
    range.batch_index = slot.batches.size();
    LMDBIO_TRY_VOID(AddRange(range, slot));
    slot.ranges.push_back(range);
  }
  slot.batches.push_back(batch);
  LMDBIO_TRY_VOID(locator_.EndBatch());
  LookAhead(batch.number + 1);
  return true;
}

// Shares, entries and pages, one behind the other.
Status SlotPlanner::Place(PlannedSlot& slot) {
  const uint64_t shares_bytes = slot.batches.size() * ranks_.local_ranks.size() * sizeof(SubBatch);
  const uint64_t entries_at = AlignUp(shares_bytes, alignof(Entry));
  const uint64_t pages_at =
      AlignUp(entries_at + slot.plan.values().size() * sizeof(Entry), layout::kStretchAlignBytes);
  const uint64_t size_bytes = pages_at + slot.plan.buffer_bytes();
  const std::optional<RingPlace> place = ring_.Allocate(size_bytes);
  if (!place) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("batch {} needs {} bytes of this host's memory, the budget leaves {}; "
                            "make the batch smaller or the memory budget larger",
                            slot.batches.front().number, size_bytes, limits_.ring_bytes));
  }
  const uint64_t reused =
      slot.number >= Window::kSlotsMax ? slot.number - Window::kSlotsMax + 1 : 0;
  slot.free_after = std::max(place->free_after, reused);
  slot.pages_at = limits_.is_in_place ? 0 : place->at + pages_at;
  slot.head = {slot.batches.front().number, slot.batches.size(), place->at, place->at + entries_at};
  return {};
}

Result<bool> SlotPlanner::Next(PlannedSlot& slot) {
  slot.plan.Clear();
  slot.batches.clear();
  slot.ranges.clear();
  while (slot.batches.empty() || slot.plan.pending_bytes() < limits_.target_bytes) {
    if (limits_.stream_batches > 0 && next_batch_ == limits_.stream_batches) break;
    if (limits_.batch_count_max > 0 && slot.batches.size() == limits_.batch_count_max) break;
    LMDBIO_TRY(const bool added, AddBatch(schedule_.Batch(next_batch_), slot));
    if (!added) return false;
    ++next_batch_;
    // A host without a record in any batch must not wait for bytes that never come.
    if (slot.batches.size() >= kBatchesMax) break;
  }
  if (slot.batches.empty()) return false;
  slot.plan.Finish();
  slot.number = next_slot_++;
  LMDBIO_TRY_VOID(Place(slot));
  return true;
}

}  // namespace lmdbio::loader
