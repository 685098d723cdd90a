#include "lmdbio/load/slots/slot_finisher.h"

#include <algorithm>
#include <new>
#include <utility>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/file/map/map_advice.h"

namespace lmdbio::load {
namespace {

using file::LeafEntry;
using file::LeafPage;

// Linux maps the cached pages of such a piece of the file together, when one of them is touched.
constexpr uint64_t kMappedTogetherBytes = 64 << 10;

// Touches each such piece of a value. value_at counts from the start of the file.
void TouchPages(Bytes map, uint64_t value_at, uint64_t length_bytes) {
  const uint64_t end = value_at + length_bytes;
  for (uint64_t at = value_at; at < end; at = AlignUp(at + 1, kMappedTogetherBytes)) {
    file::TouchByte(map, at);
  }
}

}  // namespace

SlotFinisher::SlotFinisher(file::JoinedPages pages, HostRanks ranks, OnError on_error,
                           uint64_t field_count)
    : checker_(std::move(pages)),
      ranks_(std::move(ranks)),
      on_error_(on_error),
      field_count_(field_count),
      local_of_(static_cast<size_t>(ranks_.rank_count), -1) {
  for (size_t i = 0; i < ranks_.local_ranks.size(); ++i) {
    local_of_[static_cast<size_t>(ranks_.local_ranks[i])] = static_cast<int>(i);
  }
}

bool SlotFinisher::IsBad(uint64_t at, uint64_t length_bytes) const {
  return std::any_of(bad_ranges_.begin(), bad_ranges_.end(), [&](const BadRange& bad) {
    return at < bad.at + bad.length_bytes && bad.at < at + std::max<uint64_t>(1, length_bytes);
  });
}

// Assigns each local rank its entries in the batches of the next group. A skipped record leaves its
// entry unused.
void SlotFinisher::BeginGroup(const PlannedSlot& slot) {
  if (groups_begun_ > 0) first_batch_ += slot.groups[groups_begun_ - 1].batch_count;
  const size_t local_count = ranks_.local_ranks.size();
  const uint64_t end = first_batch_ + slot.groups[groups_begun_++].batch_count;
  for (uint64_t batch = first_batch_; batch < end; ++batch) {
    const BatchSpan& span = slot.batches[batch];
    for (size_t i = 0; i < local_count; ++i) {
      const int owner = ranks_.local_ranks[LenderOf(i, span.pass)];
      // Room for all records of the share. The count grows as they pass their checks.
      shares_[batch * local_count + i] = {next_entry_, 0, 0};
      next_entry_ += ShareCount(span, ranks_.share, owner, ranks_.rank_count) * field_count_;
    }
  }
}

// With ReuseAmong::kHost, the shares of a batch move by one local rank in each pass. LenderOf
// returns the local rank whose share `taker` gets in a pass; TakerOf is the inverse function.
size_t SlotFinisher::LenderOf(size_t taker, uint64_t pass) const {
  if (ranks_.reuse_among == ReuseAmong::kRank) return taker;
  return (taker + pass) % ranks_.local_ranks.size();
}
size_t SlotFinisher::TakerOf(size_t lender, uint64_t pass) const {
  if (ranks_.reuse_among == ReuseAmong::kRank) return lender;
  const size_t count = ranks_.local_ranks.size();
  return (lender + count - pass % count) % count;
}

void SlotFinisher::BeginGroupsUpTo(const PlannedSlot& slot, size_t group_count) {
  while (groups_begun_ < group_count) BeginGroup(slot);
}

Result<LeafPage> SlotFinisher::OpenRun(const PlannedSlot& slot, const PlannedRun& run) const {
  const file::JoinedPages& pages = checker_.pages();
  const uint64_t page_bytes = pages.page_format().page_size_bytes();
  if (IsBad(run.leaf_at, page_bytes)) return pages.Corrupt(run.leaf, "could not be read");
  if (IsBad(run.home_at, page_bytes)) return pages.Corrupt(run.home, "could not be read");
  return checker_.OpenRun(run, bytes_.subspan(slot.pages_at));
}

// Checks one record. Returns its entry without its position.
Result<RecordEntry> SlotFinisher::CheckRecord(const PlannedSlot& slot, const PlannedRun& run,
                                              const Result<LeafPage>& leaf,
                                              uint64_t value_index) const {
  if (!leaf) return Fail(leaf.error().Copy());
  const PlannedValue& value = slot.plan.values()[value_index];
  LMDBIO_TRY(const LeafEntry entry,
             checker_.EntryOf(run, *leaf, value_index - run.first_value, value.file));
  const bool has_run = entry.flags == file::kOverflowNode;
  const bool leaves_head = has_run && values_are_ == ValueBytes::kLeftToRanks;
  if (has_run && !leaves_head) {
    if (!bad_ranges_.empty() && IsBad(value.at, value.file.length_bytes)) {
      return Fail(ErrorCode::kIo, "could not be read");
    }
    LMDBIO_TRY_VOID(checker_.CheckHead(value, bytes_.subspan(slot.pages_at)));
    if (values_are_ == ValueBytes::kToBeMapped) {
      TouchPages(bytes_, slot.pages_at + value.at, value.file.length_bytes);
    }
  }
  // Entries hold offsets and no addresses: each rank maps the memory at its own address.
  const auto key_at = static_cast<uint64_t>(entry.key.data() - bytes_.data());
  return RecordEntry{0,
                     slot.pages_at + value.at,
                     key_at,
                     static_cast<uint32_t>(value.file.length_bytes),
                     static_cast<uint16_t>(entry.key.size()),
                     leaves_head};
}

BatchShare& SlotFinisher::ShareOf(const PlannedSlot& slot, uint64_t batch_index, uint64_t position,
                                  uint64_t pass) {
  if (open_.batch_index != batch_index || !open_.positions.Contains(position)) {
    open_.batch_index = batch_index;
    open_.positions =
        OwnedAround(slot.batches[batch_index], position, ranks_.share, ranks_.rank_count);
    const int lender = local_of_[static_cast<size_t>(open_.positions.rank)];
    LMDBIO_DCHECK(lender >= 0);
    open_.index =
        batch_index * ranks_.local_ranks.size() + TakerOf(static_cast<size_t>(lender), pass);
  }
  return shares_[open_.index];
}

// The records of a sample follow each other. They count with the last of them, if all are good.
// entry  null: the record cannot be used
void SlotFinisher::TakeEntry(BatchShare& share, const RecordEntry* entry) {
  if (entry != nullptr) entries_[share.first_entry + share.record_count + next_.field] = *entry;
  if (next_.field + 1 < field_count_) return;
  if (entry == nullptr || next_.is_sample_bad) {
    ++share.skipped_count;
  } else {
    share.record_count += static_cast<uint32_t>(field_count_);
  }
}

// Writes the record's entry for every pass that hands it out. Counts its sample as skipped there if
// it cannot be used.
Status SlotFinisher::FinishRecord(const PlannedSlot& slot, const PlannedRun& run,
                                  const Result<LeafPage>& leaf, uint64_t value_index) {
  Result<RecordEntry> entry = CheckRecord(slot, run, leaf, value_index);
  if (!entry && on_error_ == OnError::kRaise) return Fail(std::move(entry).error());
  const GroupRange& range = slot.ranges[next_.range_index];
  const BatchGroup& group = slot.groups[range.group_index];
  for (uint64_t pass = 0; pass < group.pass_count; ++pass) {
    const BatchGroup::BatchPosition at = group.PlaceOf(range.first + next_.into_range, pass);
    const uint64_t batch_index = first_batch_ + at.batch;
    const uint64_t position = group.PositionOf(at);
    BatchShare& share = ShareOf(slot, batch_index, position, pass);
    if (entry) entry->position = position;
    TakeEntry(share, entry ? &*entry : nullptr);
  }
  next_.is_sample_bad = next_.is_sample_bad || !entry;
  return {};
}

// In later passes, records that are dealt out batch by batch arrive in any order. A batch must
// list them by position.
void SlotFinisher::SortPasses(const PlannedSlot& slot) {
  const size_t local_count = ranks_.local_ranks.size();
  uint64_t first = 0;
  for (const BatchGroup& group : slot.groups) {
    const uint64_t per_pass = group.batches_per_pass();
    const bool is_sorted = group.pass_count == 1 || group.by_slots || per_pass == 1;
    for (uint64_t batch = per_pass; batch < group.batch_count && !is_sorted; ++batch) {
      for (const BatchShare& share : shares_.subspan((first + batch) * local_count, local_count)) {
        const auto entries = entries_.subspan(share.first_entry, share.record_count);
        // Stable: the records of a sample have one position and keep their order.
        const auto is_before = [](const RecordEntry& a, const RecordEntry& b) {
          return a.position < b.position;
        };
        if (field_count_ == 1) std::sort(entries.begin(), entries.end(), is_before);
        if (field_count_ > 1) std::stable_sort(entries.begin(), entries.end(), is_before);
      }
    }
    first += group.batch_count;
  }
}

// Moves to the next record of the ranges, and opens the batches of its group if it is the first
// there.
void SlotFinisher::NextRecord(const PlannedSlot& slot) {
  if (++next_.field < field_count_) return;
  next_.field = 0;
  next_.is_sample_bad = false;
  if (++next_.into_range < slot.ranges[next_.range_index].count) return;
  next_.into_range = 0;
  if (++next_.range_index == slot.ranges.size()) return;
  BeginGroupsUpTo(slot, slot.ranges[next_.range_index].group_index + 1);
}

Status SlotFinisher::FinishRun(const PlannedSlot& slot, const PlannedRun& run) {
  const Result<LeafPage> leaf = OpenRun(slot, run);
  const std::span<const PlannedValue> values = slot.plan.values();
  for (uint64_t i = run.first_value; i < run.first_value + run.record_count; ++i) {
    if (i + kHeadsAhead < values.size() && values_are_ != ValueBytes::kLeftToRanks) {
      __builtin_prefetch(bytes_.data() + slot.pages_at + values[i + kHeadsAhead].at);
    }
    LMDBIO_TRY_VOID(FinishRecord(slot, run, leaf, i));
    NextRecord(slot);
  }
  return {};
}

Status SlotFinisher::Finish(const PlannedSlot& slot, MutableBytes ring, Bytes bytes,
                            ValueBytes values_are, std::span<const BadRange> bad_ranges) {
  // The plan lists the records in the order of the ranges, so one pass over the runs serves both.
  bytes_ = bytes;
  values_are_ = values_are;
  bad_ranges_ = bad_ranges;
  const size_t share_count = slot.batches.size() * ranks_.local_ranks.size();
  shares_ = {reinterpret_cast<BatchShare*>(&ring[slot.head.shares_at]), share_count};
  entries_ = {reinterpret_cast<RecordEntry*>(&ring[slot.head.entries_at]), slot.entry_count};
  groups_begun_ = 0;
  first_batch_ = 0;
  next_entry_ = 0;
  open_ = {};
  next_ = {};
  if (!slot.ranges.empty()) BeginGroupsUpTo(slot, slot.ranges[0].group_index + 1);
  for (const PlannedRun& run : slot.plan.runs()) LMDBIO_TRY_VOID(FinishRun(slot, run));
  LMDBIO_CHECK(next_.range_index == slot.ranges.size());
  BeginGroupsUpTo(slot, slot.groups.size());
  SortPasses(slot);
  return {};
}

}  // namespace lmdbio::load
