#include "lmdbio/load/plan/read_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::load {
namespace {

// True if a value lies completely on the home page of its run, and not in an overflow run. (An
// empty value may start at the end of its page.)
bool StandsOn(uint64_t home_begin, uint64_t page_bytes, const Extent& value) {
  if (value.length_bytes == 0) return true;
  const uint64_t into = value.offset - home_begin;  // wraps before the page
  return into < page_bytes && value.length_bytes <= page_bytes - into;
}

struct PageBytes {
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

// The pages of a value, from the first page of its overflow run, whose head the checker needs.
PageBytes PagesOf(const Extent& value, uint64_t page_bytes) {
  // No division, because this is called for each record. Page sizes are powers of two.
  const uint64_t mask = page_bytes - 1;
  return {value.offset & ~mask, (value.offset + value.length_bytes + mask) & ~mask};
}

// A larger gap costs more to read than an additional request.
constexpr uint64_t kGapBytesMax = 256 << 10;

}  // namespace

Status CheckReads(uint32_t queue_depth, uint64_t block_bytes) {
  if (queue_depth == 0) {
    return Fail(ErrorCode::kInvalidArgument, "queue_depth 0 is out of range; expected 1 or more");
  }
  // Direct reads need whole units of the alignment.
  if (block_bytes == 0 || block_bytes % kStretchAlignBytes != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("block_bytes {} is invalid; expected a positive multiple of {}",
                            block_bytes, kStretchAlignBytes));
  }
  return {};
}

void ReadPlan::Clear() {
  items_.clear();
  itemized_runs_ = 0;
  runs_.clear();
  values_.clear();
  extents_.clear();
  cutter_.Clear();
  pending_bytes_ = 0;
  buffer_bytes_ = 0;
  useful_bytes_ = 0;
}

Status ReadPlan::Add(const file::RecordRun& run) {
  const uint64_t page_bytes = options_.page_format.page_size_bytes();
  const uint64_t leaf_begin = run.leaf.value * page_bytes;
  const uint64_t home_begin = run.home.value * page_bytes;
  pending_bytes_ += home_begin == leaf_begin ? page_bytes : 2 * page_bytes;
  runs_.push_back({values_.size(), run.values.size(), run.first_record, run.leaf, run.home,
                   run.first_node, run.kind, 0, 0});
  for (const Extent& value : run.values) {
    if (!StandsOn(home_begin, page_bytes, value)) {
      const PageBytes pages = PagesOf(value, page_bytes);
      pending_bytes_ += pages.end - pages.begin;
    }
    values_.push_back({value, 0});
  }
  return {};
}

// True if the pages of value `index`, from `begin` on, can be a part of the item: they follow those
// of the value before, and would be joined with them anyway.
bool ReadPlan::Continues(const Item& item, uint64_t index, uint64_t begin) const {
  return item.part == Part::kValues && item.end == begin && item.owner + item.count == index &&
         options_.coalescing != Coalescing::kNone;
}

// Lists the pages of the runs that were added since the last call. Values that follow each other in
// the plan and in the file are one item.
void ReadPlan::ListItems() {
  const uint64_t page_bytes = options_.page_format.page_size_bytes();
  for (; itemized_runs_ < runs_.size(); ++itemized_runs_) {
    const PlannedRun& run = runs_[itemized_runs_];
    const uint64_t leaf_begin = run.leaf.value * page_bytes;
    const uint64_t home_begin = run.home.value * page_bytes;
    items_.push_back({leaf_begin, leaf_begin + page_bytes, itemized_runs_, 1, Part::kLeaf});
    if (home_begin != leaf_begin) {
      items_.push_back({home_begin, home_begin + page_bytes, itemized_runs_, 1, Part::kHome});
    }
    for (uint64_t i = run.first_value; i < run.first_value + run.record_count; ++i) {
      if (StandsOn(home_begin, page_bytes, values_[i].file)) continue;
      const PageBytes pages = PagesOf(values_[i].file, page_bytes);
      if (Continues(items_.back(), i, pages.begin)) {
        items_.back().end = pages.end;
        ++items_.back().count;
      } else {
        items_.push_back({pages.begin, pages.end, i, 1, Part::kValues});
      }
    }
  }
}

// True if the item extends the open extent. Items that overlap after alignment are always joined,
// because a page must not be planned twice. With coalescing, a gap is joined if the gap budget
// allows it.
bool ReadPlan::Extends(const CoalescedExtent& extent, const Item& item) const {
  const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
  const uint64_t end = AlignUp(extent.end, kStretchAlignBytes);
  if (begin < end) return true;
  if (options_.coalescing == Coalescing::kNone) return false;
  // The item begins behind the extent here, so the difference does not wrap.
  return item.begin - extent.end <= std::min(gap_bytes_left_, kGapBytesMax);
}

void ReadPlan::Place(const Item& item, const CoalescedExtent& extent) {
  const uint64_t shift = extent.at - extent.begin;  // modulo 2^64
  switch (item.part) {
    case Part::kLeaf:
      runs_[item.owner].leaf_at = item.begin + shift;
      break;
    case Part::kHome:
      runs_[item.owner].home_at = item.begin + shift;
      break;
    case Part::kValues:
      for (PlannedValue& value : std::span(values_).subspan(item.owner, item.count)) {
        value.at = value.file.offset + shift;
      }
      break;
  }
}

void ReadPlan::CloseExtent(const CoalescedExtent& extent) {
  // Rounded up for direct reads, but not past the end of the file.
  const uint64_t end = std::min(AlignUp(extent.end, kStretchAlignBytes), options_.file_size_bytes);
  extents_.push_back(extent);
  extents_.back().end = std::max(extent.begin, end);
  useful_bytes_ += extent.useful_bytes;
  if (is_in_file_) return;
  buffer_bytes_ = AlignUp(extent.at + (extents_.back().end - extent.begin), kStretchAlignBytes);
}

// Sorts the items by file offset. The items of an ordered load are in order except for some leaf
// pages. So only the items that are out of order are sorted, and then merged with the others.
void ReadPlan::SortItems() {
  const auto by_place = [](const Item& a, const Item& b) { return a.begin < b.begin; };
  strays_.clear();
  size_t kept = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (kept > 0 && items_[i].begin < items_[kept - 1].begin) {
      strays_.push_back(items_[i]);
    } else {
      if (kept < i) items_[kept] = items_[i];
      ++kept;
    }
  }
  if (strays_.empty()) return;
  items_.resize(kept);
  std::sort(strays_.begin(), strays_.end(), by_place);
  merged_.resize(kept + strays_.size());
  std::merge(items_.begin(), items_.end(), strays_.begin(), strays_.end(), merged_.begin(),
             by_place);
  std::swap(items_, merged_);
}

// Bytes of the pages that the items need, each page once. Requires: items_ in file order
uint64_t ReadPlan::NeededBytes(uint64_t* extent_count) const {
  uint64_t needed_bytes = 0;
  uint64_t seen_end = 0;
  uint64_t extents = 0;
  for (const Item& item : items_) {
    if (extents == 0 || item.begin > seen_end) ++extents;
    // Several records may share a page, so items overlap.
    if (item.end <= seen_end) continue;
    needed_bytes += item.end - std::max(item.begin, seen_end);
    seen_end = item.end;
  }
  if (extent_count != nullptr) *extent_count = extents;
  return needed_bytes;
}

uint64_t ReadPlan::Settle() {
  ListItems();
  SortItems();
  uint64_t extent_count = 0;
  pending_bytes_ = NeededBytes(&extent_count);
  return extent_count;
}

void ReadPlan::Finish() {
  is_in_file_ = options_.is_in_place;
  PlaceAll();
}

void ReadPlan::FinishInFile() {
  is_in_file_ = true;
  PlaceAll();
}

void ReadPlan::PlaceAll() {
  LMDBIO_CHECK(extents_.empty());
  PlaceItems();
  PlaceValuesOnPages();
  CutBlocks({});
}

// Assigns offsets in one pass over the items in file order. The pass keeps one open extent. An item
// extends it, over a gap if the gap budget allows, or closes it and opens the next one at the end
// of the buffer so far. A leaf-only extent stays marked as such while all its items are leaf pages.
void ReadPlan::PlaceItems() {
  ListItems();
  SortItems();
  // The budget is a share of the whole plan, so small gaps early in the file may use all of it.
  gap_bytes_left_ =
      static_cast<uint64_t>(static_cast<double>(NeededBytes(nullptr)) * options_.gap_share_max);
  CoalescedExtent extent;
  bool is_open = false;
  for (const Item& item : items_) {
    if (!is_open || !Extends(extent, item)) {
      if (is_open) CloseExtent(extent);
      const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
      extent = {begin, item.begin, is_in_file_ ? begin : buffer_bytes_, 0, true};
      is_open = true;
    }
    if (item.begin > extent.end) {
      gap_bytes_left_ -= std::min(gap_bytes_left_, item.begin - extent.end);
    }
    if (item.end > extent.end) {
      extent.useful_bytes += item.end - std::max(item.begin, extent.end);
      extent.end = item.end;
    }
    extent.is_leaf &= item.part == Part::kLeaf;
    Place(item, extent);
  }
  if (is_open) CloseExtent(extent);
}

// Values on the home page of their run have no item; their offset follows from that of the page.
void ReadPlan::PlaceValuesOnPages() {
  const uint64_t page_bytes = options_.page_format.page_size_bytes();
  for (PlannedRun& run : runs_) {
    if (run.home == run.leaf) run.home_at = run.leaf_at;
    const uint64_t home_begin = run.home.value * page_bytes;
    for (uint64_t i = run.first_value; i < run.first_value + run.record_count; ++i) {
      PlannedValue& value = values_[i];
      if (StandsOn(home_begin, page_bytes, value.file)) {
        value.at = run.home_at + (value.file.offset - home_begin);
      }
    }
  }
}

}  // namespace lmdbio::load
