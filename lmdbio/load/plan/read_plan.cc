#include "lmdbio/load/plan/read_plan.h"

#include <algorithm>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t AlignDown(uint64_t n, uint64_t unit) { return n / unit * unit; }
// True if a value lies completely on the home page of its run, and not in an overflow run. (An
// empty value may start at the end of its page.)
bool StandsOn(uint64_t home_begin, uint64_t page_bytes, const Extent& value) {
  if (value.length_bytes == 0) return true;
  const uint64_t into = value.offset - home_begin;  // wraps before the page
  return into < page_bytes && value.length_bytes <= page_bytes - into;
}

// A larger gap costs more to read than an additional request.
constexpr uint64_t kGapBytesMax = 256 << 10;

}  // namespace

void ReadPlan::Clear() {
  items_.clear();
  runs_.clear();
  values_.clear();
  stretches_.clear();
  pieces_.clear();
  had_.clear();
  parts_.clear();
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

Status ReadPlan::Add(const file::RecordRun& run) {
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

// True if the item extends the open extent. Items that overlap after alignment are always joined,
// because a page must not be planned twice. With coalescing, a gap is joined if the gap budget
// allows it.
bool ReadPlan::Extends(const CoalescedExtent& stretch, const Item& item) const {
  const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
  const uint64_t end = AlignUp(stretch.end, kStretchAlignBytes);
  if (begin < end) return true;
  if (options_.coalescing == Coalescing::kNone) return false;
  return item.begin - stretch.end <= std::min(gap_bytes_left_, kGapBytesMax);
}

void ReadPlan::Place(const Item& item, const CoalescedExtent& stretch) {
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

void ReadPlan::CloseStretch(const CoalescedExtent& stretch) {
  const uint64_t end = std::min(AlignUp(stretch.end, kStretchAlignBytes), options_.file_size_bytes);
  stretches_.push_back(stretch);
  stretches_.back().end = std::max(stretch.begin, end);
  useful_bytes_ += stretch.useful_bytes;
  if (is_in_file_) return;
  buffer_bytes_ = AlignUp(stretch.at + (stretches_.back().end - stretch.begin), kStretchAlignBytes);
}

// The planned extents of one part: the coalesced extents, cut at the largest block size. All
// extents are seen as one sequence of `total` bytes. It is divided evenly among the parts, and a
// planned extent belongs to the part in which it begins. So every process computes the same
// division.
void ReadPlan::CutPieces(const BlockCut& cut) {
  uint64_t total = 0;
  for (const CoalescedExtent& stretch : stretches_) total += stretch.end - stretch.begin;
  const auto part_begin = [&](size_t part) { return total / cut.part_count * part; };
  const uint64_t first = part_begin(cut.part);
  const uint64_t end = cut.part + 1 == cut.part_count ? total : part_begin(cut.part + 1);
  uint64_t before = 0;
  for (const CoalescedExtent& stretch : stretches_) {
    for (uint64_t begin = stretch.begin; begin < stretch.end; begin += options_.block_bytes_max) {
      const uint64_t length = std::min(options_.block_bytes_max, stretch.end - begin);
      const uint64_t place = before + (begin - stretch.begin);
      if (place < first || place >= end) continue;
      const PlannedExtent piece{
          {begin, length}, stretch.at + (begin - stretch.begin), stretch.is_leaf};
      const bool is_had = piece.is_leaf && cut.has_leaf && cut.has_leaf(piece.file);
      (is_had ? had_ : pieces_).push_back(piece);
    }
    before += stretch.end - stretch.begin;
  }
}

// Reading a gap along removes one request and adds the bytes of the gap. The gaps are taken from
// the smallest, while the time for the requests exceeds the time for the bytes. The result is the
// size of the largest gap taken and the number of gaps of that size, as not all of them may be
// taken.
ReadPlan::GapLimit ReadPlan::GapsWorthReading(const ReadCost& cost) {
  if (cost.request_s <= 0 || cost.byte_s <= 0) return {};
  gaps_.clear();
  auto bytes = static_cast<double>(pieces_.empty() ? 0 : pieces_[0].file.length_bytes);
  for (size_t i = 1; i < pieces_.size(); ++i) {
    const uint64_t last_end = pieces_[i - 1].file.offset + pieces_[i - 1].file.length_bytes;
    bytes += static_cast<double>(pieces_[i].file.length_bytes);
    const uint64_t gap = pieces_[i].file.offset - last_end;
    if (gap > 0 && gap < options_.block_bytes_max) gaps_.push_back(gap);
  }
  std::sort(gaps_.begin(), gaps_.end());
  auto requests = static_cast<double>(pieces_.size());
  GapLimit limit;
  for (const uint64_t gap : gaps_) {
    bytes += static_cast<double>(gap);
    if (bytes * cost.byte_s > requests * cost.request_s) break;
    limit = {gap, gap == limit.bytes ? limit.largest_count + 1 : 1};
    --requests;
  }
  return limit;
}

void ReadPlan::JoinPieces(GapLimit limit) {
  for (const PlannedExtent& piece : pieces_) {
    const Extent& file = piece.file;
    if (limit.bytes > 0 && !blocks_.empty()) {
      PlannedBlock& last = blocks_.back();
      const uint64_t last_end = last.file.offset + last.file.length_bytes;
      const uint64_t joined = file.offset + file.length_bytes - last.file.offset;
      const uint64_t gap = file.offset - last_end;
      const bool is_worth = gap < limit.bytes || (gap == limit.bytes && limit.largest_count > 0);
      if (is_worth && joined <= options_.block_bytes_max) {
        if (gap == limit.bytes) --limit.largest_count;
        if (last.part_count == 0) {
          last.first_part = static_cast<uint32_t>(parts_.size());
          last.part_count = 1;
          parts_.push_back({last.file, last.at, last.is_leaf});
        }
        parts_.push_back(piece);
        ++last.part_count;
        last.file.length_bytes = joined;
        last.is_leaf = false;
        continue;
      }
    }
    blocks_.push_back({file, piece.at, 0, 0, piece.is_leaf});
  }
  for (const PlannedBlock& block : blocks_) read_bytes_ += block.file.length_bytes;
}

void ReadPlan::CutBlocks(const BlockCut& cut) {
  pieces_.clear();
  had_.clear();
  parts_.clear();
  blocks_.clear();
  read_bytes_ = 0;
  CutPieces(cut);
  JoinPieces(GapsWorthReading(cut.cost));
}

// Sorts the items by file offset. The items of an ordered load are in order except for some leaf
// pages. So only the items that are out of order are sorted, and then merged with the others.
void ReadPlan::SortItems() {
  const auto by_place = [](const Item& a, const Item& b) { return a.begin < b.begin; };
  strays_.clear();
  size_t kept = 0;
  for (const Item item : items_) {  // a copy: the loop overwrites items
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

// Bytes of the pages that the items need, each page once. Requires: items_ in file order
uint64_t ReadPlan::NeededBytes(uint64_t* stretch_count) const {
  uint64_t needed_bytes = 0;
  uint64_t seen_end = 0;
  uint64_t stretches = 0;
  for (const Item& item : items_) {
    if (stretches == 0 || item.begin > seen_end) ++stretches;
    if (item.end <= seen_end) continue;
    needed_bytes += item.end - std::max(item.begin, seen_end);
    seen_end = item.end;
  }
  if (stretch_count != nullptr) *stretch_count = stretches;
  return needed_bytes;
}

uint64_t ReadPlan::Settle() {
  SortItems();
  uint64_t stretch_count = 0;
  pending_bytes_ = NeededBytes(&stretch_count);
  return stretch_count;
}

void ReadPlan::Finish() {
  is_in_file_ = options_.is_in_place;
  PlaceAll();
}

void ReadPlan::FinishInFile() {
  is_in_file_ = true;
  PlaceAll();
}

// Assigns offsets in one pass over the items in file order. The pass keeps one open extent. An item
// extends it, over a gap if the gap budget allows, or closes it and opens the next one at the end
// of the buffer so far. A leaf-only extent stays marked as such while all its items are leaf pages.
void ReadPlan::PlaceAll() {
  LMDBIO_CHECK(stretches_.empty());
  SortItems();
  gap_bytes_left_ =
      static_cast<uint64_t>(static_cast<double>(NeededBytes(nullptr)) * options_.gap_share_max);
  CoalescedExtent stretch;
  bool is_open = false;
  for (const Item& item : items_) {
    if (!is_open || !Extends(stretch, item)) {
      if (is_open) CloseStretch(stretch);
      const uint64_t begin = AlignDown(item.begin, kStretchAlignBytes);
      stretch = {begin, item.begin, is_in_file_ ? begin : buffer_bytes_, 0, true};
      is_open = true;
    }
    if (item.begin > stretch.end) {
      gap_bytes_left_ -= std::min(gap_bytes_left_, item.begin - stretch.end);
    }
    if (item.end > stretch.end) {
      stretch.useful_bytes += item.end - std::max(item.begin, stretch.end);
      stretch.end = item.end;
    }
    stretch.is_leaf &= item.part == Part::kLeaf;
    Place(item, stretch);
  }
  if (is_open) CloseStretch(stretch);
  PlaceValuesOnPages();
  CutBlocks({});
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
