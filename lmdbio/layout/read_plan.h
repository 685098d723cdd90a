// lmdbio/layout/read_plan.h - which bytes to fetch for a list of records, and where they will lie.
//
//   records -> the pages that hold them -> stretches of the file -> pieces -> blocks
//
// A plan is computed from places alone: no byte of the file is read. What it plans for is a buffer:
// every stretch of the file has its place there, so that a record's value and key are found at
// known offsets once the blocks have arrived, without a copy. Pages that several records share are
// fetched once. Every process that adds the same runs gets the same buffer; which blocks fill its
// part of it, each cuts for itself.
//
// Source: dissertation 5.2.3 (coalescing); docs/loader.md "Plans"; docs/order.md "Reads".
#ifndef LMDBIO_LAYOUT_READ_PLAN_H_
#define LMDBIO_LAYOUT_READ_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lmdbio/format/page_format.h"
#include "lmdbio/layout/record_run.h"

namespace lmdbio::layout {

// File offsets and buffer offsets of a stretch agree modulo this, so that storage can write
// straight into the buffer.
inline constexpr uint64_t kStretchAlignBytes = 4096;

enum class Coalescing {
  kNone,        // a block for each record (and for each leaf page that holds keys)
  kNeighbours,  // one stretch for all that lies together, cut into large blocks
};

struct PlanOptions {
  format::PageFormat page_format{format::DataVersion::k1, format::kPageBytesMin};
  uint64_t file_size_bytes = 0;
  Coalescing coalescing = Coalescing::kNeighbours;
  uint64_t block_bytes_max = 1 << 20;  // a multiple of kStretchAlignBytes
  // Pages that no record needs are read along where a stretch would otherwise end, as long as they
  // stay below this share of what the plan needs, all together.
  double gap_share_max = 1.0 / 32;
  // Nothing is to be fetched: the records are looked at where a map of the file has them. Offsets
  // are then those of the file, and blocks tell what will be touched.
  bool is_in_place = false;
};

// What storage that works on several requests at once needs for each of them and for each byte: so
// many requests and bytes take as long as the slower of the two.
struct ReadCost {
  double request_s = 0;
  double byte_s = 0;
};

// Bytes of the file that lie together in the buffer.
struct PlannedPiece {
  Extent file;
  uint64_t at = 0;       // of its first byte, in the buffer
  bool is_leaf = false;  // leaf pages alone
};

struct PlannedBlock {
  Extent file;
  uint64_t at = 0;  // of its first byte, in the buffer; with gaps: unspecified
  // Of a block with gaps: what of it is wanted, in parts(). 0: all of it.
  uint32_t part_count = 0;
  uint32_t first_part = 0;
  bool is_leaf = false;  // leaf pages alone, nothing else
};

// Which blocks to cut.
struct BlockCut {
  // Of the buffer, cut into so many parts of about the same number of bytes, this one's.
  size_t part = 0;
  size_t part_count = 1;
  // Gaps are read along while that makes the whole faster; nothing: none are.
  ReadCost cost = {};
  // Says of leaf pages alone whether the caller has them already; may be empty.
  std::function<bool(const Extent&)> has_leaf = {};
};

struct PlannedValue {
  Extent file;
  uint64_t at = 0;
};

// A record run as it was added, and where its pages will lie.
struct PlannedRun {
  uint64_t first_value = 0;  // index into values()
  uint64_t record_count = 0;
  RecordIndex first_record;
  PageNo leaf;
  PageNo home;
  uint32_t first_node = 0;
  RunKind kind = RunKind::kNodes;
  uint64_t leaf_at = 0;
  uint64_t home_at = 0;  // leaf_at unless home is another page
};

// Reused from plan to plan, so that its memory is allocated once. Threads: one at a time.
class ReadPlan final : public RecordRunSink {
 public:
  explicit ReadPlan(const PlanOptions& options) : options_(options) {}

  void Clear();

  // Adds records, in any order; a record may come twice.
  // Errors: none
  Status Add(const RecordRun& run) override;

  // Bytes of the pages added so far, pages that were shared since Settle counted as often as they
  // were added: about what the plan will read.
  uint64_t pending_bytes() const { return pending_bytes_; }

  // Makes pending_bytes exact, and says how many stretches there are so far.
  // Cost: as Finish; after that, of what was added since
  uint64_t Settle();

  // Gives what was added its place in the buffer, and cuts all of it into blocks. Afterwards the
  // plan is read only, but for CutBlocks, until Clear.
  // FinishInFile  gives it the place that it has in the file, as PlanOptions::is_in_place does
  // Cost: O(n) for records in file order, O(n log n) otherwise
  void Finish();
  void FinishInFile();

  // Cuts other blocks for the same buffer. Requires: Finish was called
  void CutBlocks(const BlockCut& cut);

  std::span<const PlannedBlock> blocks() const { return blocks_; }
  std::span<const PlannedPiece> parts() const { return parts_; }  // of all blocks with gaps
  // What the caller has already, of its part.
  std::span<const PlannedPiece> had() const { return had_; }
  std::span<const PlannedRun> runs() const { return runs_; }
  std::span<const PlannedValue> values() const { return values_; }

  uint64_t buffer_bytes() const { return buffer_bytes_; }  // a multiple of kStretchAlignBytes; or 0
  uint64_t read_bytes() const { return read_bytes_; }      // of blocks()
  uint64_t useful_bytes() const { return useful_bytes_; }  // of the pages that hold the records

 private:
  enum class Part : uint32_t { kLeaf, kHome, kValue };
  // Pages that something needs, and what it is.
  struct Item {
    uint64_t begin = 0;  // bytes from the start of the file; page-aligned
    uint64_t end = 0;
    uint64_t owner = 0;  // index into runs_ or values_
    Part part = Part::kLeaf;
  };
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t at = 0;
    uint64_t useful_bytes = 0;
    bool is_leaf = true;
  };

  // Gaps up to a size are read along, and of that size itself so many.
  struct GapLimit {
    uint64_t bytes = 0;
    uint64_t largest_count = 0;
  };

  void AddItem(uint64_t begin, uint64_t end, uint64_t owner, Part part);
  void SortItems();
  bool Extends(const Stretch& stretch, const Item& item) const;
  void Place(const Item& item, const Stretch& stretch);
  void CloseStretch(const Stretch& stretch);
  uint64_t NeededBytes(uint64_t* stretch_count) const;
  void PlaceAll();
  void PlaceValuesOnPages();
  void CutPieces(const BlockCut& cut);
  GapLimit GapsWorthReading(const ReadCost& cost);
  void JoinPieces(GapLimit limit);

  PlanOptions options_;
  std::vector<Item> items_;
  std::vector<Item> strays_, merged_;  // of SortItems
  std::vector<PlannedRun> runs_;
  std::vector<PlannedValue> values_;
  bool is_in_file_ = false;  // places are the file's
  std::vector<Stretch> stretches_;
  std::vector<PlannedPiece> pieces_, had_, parts_;
  std::vector<uint64_t> gaps_;  // of GapsWorthReading
  std::vector<PlannedBlock> blocks_;
  uint64_t pending_bytes_ = 0;
  uint64_t gap_bytes_left_ = 0;  // that may still be read along
  uint64_t buffer_bytes_ = 0;
  uint64_t read_bytes_ = 0;
  uint64_t useful_bytes_ = 0;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_READ_PLAN_H_
