#include "lmdbio/layout/read_plan.h"

#include <algorithm>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::layout {
namespace {

constexpr uint64_t AlignDown(uint64_t n, uint64_t unit) { return n / unit * unit; }
// Whether a value stands on its run's own page, whole, and not in an overflow run. (An empty value
// may start where its page ends.)
bool StandsOn(uint64_t home_begin, uint64_t page_bytes, const Extent& value) {
  if (value.length_bytes == 0) return true;
  const uint64_t into = value.offset - home_begin;  // wraps before the page
  return into < page_bytes && value.length_bytes <= page_bytes - into;
}

// Reading more than this along costs more than a request.
constexpr uint64_t kGapBytesMax = 256 << 10;

}  // namespace

void ReadPlan::Clear() {
  items_.clear();
  runs_.clear();
  values_.clear();
  blocks_.clear();
  pending_bytes_ = 0;
  buffer_bytes_ = 0;
  read_bytes_ = 0;
  useful_bytes_ = 0;
}

void ReadPlan::AddItem(uint64_t begin, uint64_t end, uint64_t owner, Part part) {
  items_.push_back({begin, end, owner, part});
  pending_bytes_ += end - begin;
}

Status ReadPlan::Add(const RecordRun& run) {
  const uint64_t page_bytes = options_.page_format.page_size_bytes();
  const uint64_t leaf_begin = run.leaf.value * page_bytes;
  const uint64_t home_begin = run.home.value * page_bytes;
  AddItem(leaf_begin, leaf_begin + page_bytes, runs_.size(), Part::kLeaf);
  if (home_begin != leaf_begin) {
    AddItem(home_begin, home_begin + page_bytes, runs_.size(), Part::kHome);
  }
  runs_.push_back({values_.size(), run.values.size(), run.first_record, run.leaf, run.home,
                   run.first_node, run.kind, 0, 0});
  for (const Extent& value : run.values) {
    if (!StandsOn(home_begin, page_bytes, value)) {
      AddItem(AlignDown(value.offset, page_bytes),
              AlignUp(value.offset + value.length_bytes, page_bytes), values_.size(), Part::kValue);
    }
    values_.push_back({value, 0});
  }
  return {};
}

// Whether the stretch goes on to the item. Without coalescing only what overlaps is joined, because
// a page must not be planned twice.
bool ReadPlan::Extends(const Stretch& stretch, const Item& item) const {
  const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
  const uint64_t end = AlignUp(stretch.end, kStretchAlignBytes);
  if (begin < end) return true;
  if (options_.coalescing == Coalescing::kNone) return false;
  return item.begin - stretch.end <= std::min(gap_bytes_left_, kGapBytesMax);
}

void ReadPlan::Place(const Item& item, const Stretch& stretch) {
  const uint64_t at = stretch.at + (item.begin - stretch.begin);
  switch (item.part) {
    case Part::kLeaf:
      runs_[item.owner].leaf_at = at;
      break;
    case Part::kHome:
      runs_[item.owner].home_at = at;
      break;
    case Part::kValue:
      values_[item.owner].at = at + (values_[item.owner].file.offset - item.begin);
      break;
  }
}

void ReadPlan::CloseStretch(const Stretch& stretch) {
  const uint64_t end = std::min(AlignUp(stretch.end, kStretchAlignBytes), options_.file_size_bytes);
  for (uint64_t begin = stretch.begin; begin < end; begin += options_.block_bytes_max) {
    const uint64_t length_bytes = std::min(options_.block_bytes_max, end - begin);
    blocks_.push_back({{begin, length_bytes}, stretch.at + (begin - stretch.begin)});
  }
  read_bytes_ += end - stretch.begin;
  useful_bytes_ += stretch.useful_bytes;
  if (options_.is_in_place) return;
  buffer_bytes_ = AlignUp(stretch.at + (end - stretch.begin), kStretchAlignBytes);
}

// Items of an ordered load come in order but for a leaf page now and then; these alone are sorted,
// and merged with the rest.
void ReadPlan::SortItems() {
  const auto by_place = [](const Item& a, const Item& b) { return a.begin < b.begin; };
  strays_.clear();
  size_t kept = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item item = items_[i];
    if (kept > 0 && item.begin < items_[kept - 1].begin) {
      strays_.push_back(item);
    } else {
      items_[kept++] = item;
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

void ReadPlan::Finish() {
  LMDBIO_CHECK(blocks_.empty());
  SortItems();
  uint64_t needed_bytes = 0;
  uint64_t seen_end = 0;
  for (const Item& item : items_) {
    if (item.end <= seen_end) continue;
    needed_bytes += item.end - std::max(item.begin, seen_end);
    seen_end = item.end;
  }
  gap_bytes_left_ =
      static_cast<uint64_t>(static_cast<double>(needed_bytes) * options_.gap_share_max);
  Stretch stretch;
  bool is_open = false;
  for (const Item& item : items_) {
    if (!is_open || !Extends(stretch, item)) {
      if (is_open) CloseStretch(stretch);
      const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
      stretch = {begin, item.begin, options_.is_in_place ? begin : buffer_bytes_, 0};
      is_open = true;
    }
    if (item.begin > stretch.end) {
      gap_bytes_left_ -= std::min(gap_bytes_left_, item.begin - stretch.end);
    }
    if (item.end > stretch.end) {
      stretch.useful_bytes += item.end - std::max(item.begin, stretch.end);
      stretch.end = item.end;
    }
    Place(item, stretch);
  }
  if (is_open) CloseStretch(stretch);
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

}  // namespace lmdbio::layout
