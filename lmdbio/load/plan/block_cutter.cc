#include "lmdbio/load/plan/block_cutter.h"

#include <algorithm>

namespace lmdbio::load {

void BlockCutter::Clear() {
  extents_.clear();
  had_.clear();
  parts_.clear();
  blocks_.clear();
  read_bytes_ = 0;
}

void BlockCutter::Cut(std::span<const CoalescedExtent> extents, const BlockCut& cut) {
  Clear();
  CutExtents(extents, cut);
  JoinExtents(GapsWorthReading(cut.cost));
}

// Cuts the coalesced extents at the largest block, and keeps the reader's part. All extents are
// seen as one sequence of `total` bytes. It is divided evenly among the parts, and an extent
// belongs to the part in which it begins. So every reader computes the same division.
void BlockCutter::CutExtents(std::span<const CoalescedExtent> extents, const BlockCut& cut) {
  uint64_t total = 0;
  for (const CoalescedExtent& extent : extents) total += extent.end - extent.begin;
  const auto part_begin = [&](size_t part) { return total / cut.part_count * part; };
  const uint64_t first = part_begin(cut.part);
  // The last part takes the rest of the division.
  const uint64_t end = cut.part + 1 == cut.part_count ? total : part_begin(cut.part + 1);
  uint64_t before = 0;  // bytes of the extents before this one
  for (const CoalescedExtent& extent : extents) {
    for (uint64_t begin = extent.begin; begin < extent.end; begin += whole_bytes_max_) {
      const uint64_t length = std::min(whole_bytes_max_, extent.end - begin);
      const uint64_t offset = before + (begin - extent.begin);
      if (offset < first || offset >= end) continue;
      const PlannedExtent planned{
          {begin, length}, extent.at + (begin - extent.begin), extent.is_leaf};
      const bool is_had = planned.is_leaf && cut.has_leaf && cut.has_leaf(planned.file);
      (is_had ? had_ : extents_).push_back(planned);
    }
    before += extent.end - extent.begin;
  }
}

// Reading a gap along removes one request and adds the bytes of the gap. The gaps are taken from
// the smallest, while the time for the requests exceeds the time for the bytes. The result is the
// size of the largest gap taken and the number of gaps of that size, as not all of them may be
// taken.
BlockCutter::GapLimit BlockCutter::GapsWorthReading(const ReadCost& cost) {
  if (cost.request_s <= 0 || cost.byte_s <= 0) return {};
  gaps_.clear();
  auto bytes = static_cast<double>(extents_.empty() ? 0 : extents_[0].file.length_bytes);
  for (size_t i = 1; i < extents_.size(); ++i) {
    const Extent& last = extents_[i - 1].file;
    const Extent& file = extents_[i].file;
    bytes += static_cast<double>(file.length_bytes);
    const uint64_t gap = file.offset - (last.offset + last.length_bytes);
    // Extents that touch were cut at the size of a block; a join would exceed it.
    if (gap > 0 && gap < block_bytes_max_) gaps_.push_back(gap);
  }
  std::sort(gaps_.begin(), gaps_.end());
  auto requests = static_cast<double>(extents_.size());
  GapLimit limit;
  for (const uint64_t gap : gaps_) {
    bytes += static_cast<double>(gap);
    if (bytes * cost.byte_s > requests * cost.request_s) break;
    limit = {gap, gap == limit.bytes ? limit.largest_count + 1 : 1};
    --requests;
  }
  return limit;
}

// Makes a block of each extent, or appends the extent to the block before, over a gap within the
// limit. The first join turns the earlier block into the first part of the new one.
void BlockCutter::JoinExtents(GapLimit limit) {
  for (const PlannedExtent& extent : extents_) {
    const Extent& file = extent.file;
    if (limit.bytes > 0 && !blocks_.empty()) {
      PlannedBlock& last = blocks_.back();
      const uint64_t last_end = last.file.offset + last.file.length_bytes;
      const uint64_t joined = file.offset + file.length_bytes - last.file.offset;
      const uint64_t gap = file.offset - last_end;
      const bool is_worth = gap < limit.bytes || (gap == limit.bytes && limit.largest_count > 0);
      if (is_worth && joined <= block_bytes_max_) {
        if (gap == limit.bytes) --limit.largest_count;
        if (last.part_count == 0) {
          last.first_part = static_cast<uint32_t>(parts_.size());
          last.part_count = 1;
          parts_.push_back({last.file, last.at, last.is_leaf});
        }
        parts_.push_back(extent);
        ++last.part_count;
        last.file.length_bytes = joined;
        last.is_leaf = false;
        continue;
      }
    }
    blocks_.push_back({file, extent.at, 0, 0, extent.is_leaf});
  }
  for (const PlannedBlock& block : blocks_) read_bytes_ += block.file.length_bytes;
}

}  // namespace lmdbio::load
