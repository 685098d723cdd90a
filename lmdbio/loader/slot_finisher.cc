#include "lmdbio/loader/slot_finisher.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::loader {
namespace {

using format::LeafEntry;
using format::LeafPage;
using layout::PlannedRun;
using layout::PlannedValue;
using layout::RunKind;

// How far ahead the heads of overflow runs are fetched into the cache: they lie pages apart, where
// the processor does not expect them.
constexpr uint64_t kHeadsAhead = 8;

}  // namespace

SlotFinisher::SlotFinisher(const layout::PageReader& pages, HostRanks ranks, OnError on_error)
    : pages_(pages),
      ranks_(std::move(ranks)),
      on_error_(on_error),
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

// Gives each local rank its room among the entries of the next group's batches. What is skipped
// later leaves room unused.
void SlotFinisher::BeginGroup(const PlannedSlot& slot) {
  if (groups_begun_ > 0) first_batch_ += slot.groups[groups_begun_ - 1].batch_count;
  const size_t local_count = ranks_.local_ranks.size();
  const uint64_t end = first_batch_ + slot.groups[groups_begun_++].batch_count;
  for (uint64_t batch = first_batch_; batch < end; ++batch) {
    for (size_t i = 0; i < local_count; ++i) {
      shares_[batch * local_count + i] = {next_entry_, 0, 0};
      next_entry_ += order::ShareCount(slot.batches[batch], ranks_.share, ranks_.local_ranks[i],
                                       ranks_.rank_count);
    }
  }
}

void SlotFinisher::BeginGroupsUpTo(const PlannedSlot& slot, size_t group_count) {
  while (groups_begun_ < group_count) BeginGroup(slot);
}

Result<SlotFinisher::Leaf> SlotFinisher::OpenLeaf(const PlannedSlot& slot, const PlannedRun& run) {
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  const uint64_t at = slot.pages_at + run.leaf_at;
  if (IsBad(run.leaf_at, page_bytes)) {
    return pages_.Corrupt(run.leaf, "could not be read");
  }
  LMDBIO_TRY(const layout::TreePage page,
             pages_.CheckTreePage(run.leaf, bytes_.subspan(at, page_bytes)));
  if (page.header.kind != format::PageKind::kLeaf) {
    return pages_.Corrupt(run.leaf, "is no leaf page, although the layout says so");
  }
  Result<LeafPage> leaf = LeafPage::Parse(pages_.page_format(), page.bytes, page.header);
  if (!leaf) return pages_.InFile(std::move(leaf).error());
  const uint64_t nodes = run.kind == RunKind::kNodes ? run.record_count : 1;
  if (run.first_node + nodes > leaf->entry_count()) {
    return pages_.Corrupt(run.leaf, fmt::format("holds {} nodes, the layout expects {} from {} on",
                                                leaf->entry_count(), nodes, run.first_node));
  }
  if (run.home != run.leaf) LMDBIO_TRY_VOID(CheckHome(slot, run));
  return Leaf{*leaf, at};
}

// The page of a private tree that holds many duplicates of one key.
Status SlotFinisher::CheckHome(const PlannedSlot& slot, const PlannedRun& run) const {
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  if (IsBad(run.home_at, page_bytes)) return pages_.Corrupt(run.home, "could not be read");
  LMDBIO_TRY(
      const layout::TreePage page,
      pages_.CheckTreePage(run.home, bytes_.subspan(slot.pages_at + run.home_at, page_bytes)));
  if (page.header.kind == format::PageKind::kBranch) {
    return pages_.Corrupt(run.home, "is no leaf page, although the layout says so");
  }
  return {};
}

// Whether the node that holds the key speaks of this value.
Status SlotFinisher::CheckEntry(const Leaf& leaf, const PlannedRun& run, const PlannedValue& value,
                                const LeafEntry& entry) const {
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  const auto other = [&](std::string_view what) {
    return pages_.Corrupt(run.leaf, fmt::format("{} than the layout says, {} bytes at {}", what,
                                                value.file.length_bytes, value.file.offset));
  };
  switch (entry.flags) {
    case format::kSubPageNode:
    case format::kSubTreeNode:
      if (run.kind == RunKind::kDuplicates) return {};
      return other("a node holds duplicates, other");
    case format::kOverflowNode: {
      if (run.kind != RunKind::kNodes) return other("a node holds one value, other");
      LMDBIO_TRY(const Extent place, pages_.OverflowExtent(run.leaf, leaf.page, entry));
      if (place == value.file) return {};
      return other("a node refers to another value");
    }
    default: {
      if (run.kind != RunKind::kNodes) return other("a node holds one value, other");
      const Extent place{run.leaf.value * page_bytes + entry.data_offset, entry.value_bytes};
      if (place == value.file) return {};
      return other("a node holds another value");
    }
  }
}

Status SlotFinisher::FinishRecord(const PlannedSlot& slot, const PlannedRun& run,
                                  const Result<Leaf>& leaf, uint64_t value_index) {
  const GroupRange& range = slot.ranges[range_index_];
  const order::BatchGroup& group = slot.groups[range.group_index];
  const uint64_t batch_index = first_batch_ + group.BatchOf(range.first + into_range_);
  const uint64_t position = group.PositionOf(range.first + into_range_);
  const int local = local_of_[static_cast<size_t>(
      order::OwnerOf(slot.batches[batch_index], position, ranks_.share, ranks_.rank_count))];
  LMDBIO_DCHECK(local >= 0);
  SubBatch& share = shares_[batch_index * ranks_.local_ranks.size() + static_cast<size_t>(local)];
  const auto skip = [&](const Error& why) -> Status {
    if (on_error_ == OnError::kRaise) return Fail(why.code(), why.message());
    ++share.skipped_count;
    return {};
  };
  if (!leaf) return skip(leaf.error());
  const PlannedValue& value = slot.plan.values()[value_index];
  const bool node_each = run.kind == RunKind::kNodes;
  const uint64_t into = node_each ? value_index - run.first_value : 0;
  const LeafEntry entry = leaf->page.Entry(run.first_node + static_cast<uint32_t>(into));
  Status sound = CheckEntry(*leaf, run, value, entry);
  const bool has_run = entry.flags == format::kOverflowNode;
  if (sound && has_run && !is_in_place_) {
    const uint64_t header_bytes = pages_.page_format().header_bytes();
    if (!bad_ranges_.empty() && IsBad(value.at, value.file.length_bytes)) {
      return skip(Error(ErrorCode::kIo, "could not be read"));
    }
    const PageNo first{value.file.offset / pages_.page_format().page_size_bytes()};
    sound = pages_.CheckOverflowHead(
        first, bytes_.subspan(slot.pages_at + value.at - header_bytes, header_bytes),
        value.file.length_bytes);
  }
  if (!sound) return skip(sound.error());
  const auto key_at = static_cast<uint64_t>(entry.key.data() - bytes_.data());
  entries_[share.first_entry + share.record_count++] = {
      position,
      slot.pages_at + value.at,
      key_at,
      static_cast<uint32_t>(value.file.length_bytes),
      static_cast<uint16_t>(entry.key.size()),
      has_run};
  return {};
}

void SlotFinisher::NextRecord(const PlannedSlot& slot) {
  if (++into_range_ < slot.ranges[range_index_].count) return;
  into_range_ = 0;
  if (++range_index_ == slot.ranges.size()) return;
  BeginGroupsUpTo(slot, slot.ranges[range_index_].group_index + 1);
}

Status SlotFinisher::FinishRun(const PlannedSlot& slot, const PlannedRun& run) {
  const Result<Leaf> leaf = OpenLeaf(slot, run);
  const std::span<const PlannedValue> values = slot.plan.values();
  for (uint64_t i = run.first_value; i < run.first_value + run.record_count; ++i) {
    if (i + kHeadsAhead < values.size() && !is_in_place_) {
      __builtin_prefetch(bytes_.data() + slot.pages_at + values[i + kHeadsAhead].at);
    }
    LMDBIO_TRY_VOID(FinishRecord(slot, run, leaf, i));
    NextRecord(slot);
  }
  return {};
}

Status SlotFinisher::Finish(const PlannedSlot& slot, MutableBytes ring, Bytes bytes,
                            std::span<const BadRange> bad_ranges) {
  bytes_ = bytes;
  is_in_place_ = bytes.data() != ring.data();
  bad_ranges_ = bad_ranges;
  const size_t share_count = slot.batches.size() * ranks_.local_ranks.size();
  shares_ = {reinterpret_cast<SubBatch*>(&ring[slot.head.shares_at]), share_count};
  entries_ = {reinterpret_cast<Entry*>(&ring[slot.head.entries_at]), slot.plan.values().size()};
  groups_begun_ = 0;
  first_batch_ = 0;
  next_entry_ = 0;
  range_index_ = 0;
  into_range_ = 0;
  if (!slot.ranges.empty()) BeginGroupsUpTo(slot, slot.ranges[0].group_index + 1);
  for (const PlannedRun& run : slot.plan.runs()) LMDBIO_TRY_VOID(FinishRun(slot, run));
  LMDBIO_CHECK(range_index_ == slot.ranges.size());
  BeginGroupsUpTo(slot, slot.groups.size());
  return {};
}

}  // namespace lmdbio::loader
