// lmdbio/load/plan/block_cutter.h - from the extents of a plan to the blocks of one reader.
//
//   coalesced extents -> extents of at most a block -> the reader's part of them -> blocks
//
// Several readers share a plan. Each of them cuts the same extents and keeps its own part, so no
// message is needed. A gap between two extents may be read along, if one request less saves more
// time than the bytes of the gap cost.
//
// Source: docs/loader.md "Plans"; docs/order.md "Reads".
#ifndef LMDBIO_LOAD_PLAN_BLOCK_CUTTER_H_
#define LMDBIO_LOAD_PLAN_BLOCK_CUTTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::load {

// The cost model of storage that overlaps requests: time for each request and for each byte. A list
// of blocks takes the larger of requests * request_s and bytes * byte_s.
struct ReadCost {
  double request_s = 0;
  double byte_s = 0;
};

// Pages of the file that are needed, or read along, and that lie side by side in the buffer.
struct CoalescedExtent {
  uint64_t begin = 0;  // file offset
  uint64_t end = 0;
  uint64_t at = 0;            // of `begin`, in the buffer
  uint64_t useful_bytes = 0;  // of the pages that are needed
  bool is_leaf = true;        // leaf pages alone
};

// An extent of the file that is contiguous in the buffer.
struct PlannedExtent {
  Extent file;
  uint64_t at = 0;       // of its first byte, in the buffer
  bool is_leaf = false;  // leaf pages alone
};

struct PlannedBlock {
  Extent file;
  uint64_t at = 0;  // of its first byte, in the buffer; with gaps: unspecified
  // For a block with gaps: its wanted parts are parts()[first_part, first_part + part_count).
  // 0: the whole block is wanted.
  uint32_t part_count = 0;
  uint32_t first_part = 0;
  bool is_leaf = false;  // leaf pages alone, nothing else
};

// The part of a plan that one reader reads, and its choice of gaps.
struct BlockCut {
  // The buffer is cut into part_count parts of about the same number of bytes; the blocks are those
  // of part `part`.
  size_t part = 0;
  size_t part_count = 1;
  // Gaps are read along while that makes the whole part faster. Zero costs: no gap is read.
  ReadCost cost = {};
  // Returns true for an extent of leaf pages that the caller already has. May be empty.
  std::function<bool(const Extent&)> has_leaf = {};
};

// Reused from plan to plan, so that its memory is allocated once. Threads: one at a time.
class BlockCutter {
 public:
  // block_bytes_max  the largest block with gaps
  // whole_bytes_max  the largest block without gaps
  BlockCutter(uint64_t block_bytes_max, uint64_t whole_bytes_max)
      : block_bytes_max_(block_bytes_max), whole_bytes_max_(whole_bytes_max) {}

  void Clear();

  // Replaces the blocks by those of `extents`, which are in file order and do not overlap.
  void Cut(std::span<const CoalescedExtent> extents, const BlockCut& cut);

  std::span<const PlannedBlock> blocks() const { return blocks_; }
  std::span<const PlannedExtent> parts() const { return parts_; }  // of all blocks with gaps
  // The extents of the part for which BlockCut::has_leaf returned true.
  std::span<const PlannedExtent> had() const { return had_; }
  uint64_t read_bytes() const { return read_bytes_; }  // of blocks()

 private:
  // Gaps of less than `bytes` are read along, and `largest_count` gaps of exactly `bytes`.
  struct GapLimit {
    uint64_t bytes = 0;
    uint64_t largest_count = 0;
  };

  void CutExtents(std::span<const CoalescedExtent> extents, const BlockCut& cut);
  GapLimit GapsWorthReading(const ReadCost& cost);
  void JoinExtents(GapLimit limit);

  uint64_t block_bytes_max_;
  uint64_t whole_bytes_max_;
  std::vector<PlannedExtent> extents_;  // of the part, none larger than whole_bytes_max_
  std::vector<PlannedExtent> had_;
  std::vector<PlannedExtent> parts_;
  std::vector<PlannedBlock> blocks_;
  std::vector<uint64_t> gaps_;  // of GapsWorthReading
  uint64_t read_bytes_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_BLOCK_CUTTER_H_
