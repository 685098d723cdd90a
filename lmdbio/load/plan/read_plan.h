// lmdbio/load/plan/read_plan.h - the blocks to read for a list of records, and their buffer
// offsets.
//
//   records -> the pages that hold them -> coalesced extents -> blocks (block_cutter.h)
//
// A plan is computed from record locations alone; no byte of the file is read. Every coalesced
// extent gets an offset in a buffer. So the value and the key of a record are at known offsets
// after the blocks were read, without a copy. A page that several records share is fetched once.
// Every process that adds the same runs gets the same buffer; each process cuts its own blocks for
// its part of the buffer.
//
// Source: dissertation 5.2.3 (coalescing); docs/loader.md "Plans"; docs/order.md "Reads".
#ifndef LMDBIO_LOAD_PLAN_READ_PLAN_H_
#define LMDBIO_LOAD_PLAN_READ_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/load/plan/block_cutter.h"

namespace lmdbio::load {

// File offset and buffer offset of a coalesced extent are equal modulo this number, so that direct
// I/O can write into the buffer.
inline constexpr uint64_t kStretchAlignBytes = 4096;

enum class Coalescing {
  kNone,        // a block for each record (and for each leaf page that holds keys)
  kNeighbours,  // neighbouring pages form one extent, cut into large blocks
};

struct ReadPlanOptions {
  file::PageFormat page_format{file::DataVersion::k1, file::kPageBytesMin};
  uint64_t file_size_bytes = 0;
  Coalescing coalescing = Coalescing::kNeighbours;
  uint64_t block_bytes_max = 1 << 20;  // a multiple of kStretchAlignBytes
  // The largest block without gaps, which needs no staging buffer; 0: block_bytes_max.
  uint64_t whole_bytes_max = 0;
  // Gaps between needed pages are read along, which joins two extents, while all gaps together stay
  // below this share of the bytes that the plan needs.
  double gap_share_max = 1.0 / 32;
  // The caller uses the records in a map of the file and fetches nothing. Offsets are then file
  // offsets, and the blocks are the extents that the caller will touch.
  bool is_in_place = false;
};

struct PlannedValue {
  Extent file;
  uint64_t at = 0;
};

// A record run as it was added, and the buffer offsets of its pages.
struct PlannedRun {
  uint64_t first_value = 0;  // index into values()
  uint64_t record_count = 0;
  RecordIndex first_record;
  PageNo leaf;
  PageNo home;
  uint32_t first_node = 0;
  file::RunKind kind = file::RunKind::kNodes;
  uint64_t leaf_at = 0;
  uint64_t home_at = 0;  // leaf_at unless home is another page
};

// Checks the options of reads. Errors: kInvalidArgument  names the option
Status CheckReads(uint32_t queue_depth, uint64_t block_bytes);

// Reused from plan to plan, so that its memory is allocated once. Threads: one at a time.
class ReadPlan final : public file::RecordRunSink {
 public:
  explicit ReadPlan(const ReadPlanOptions& options)
      : options_(options),
        cutter_(options.block_bytes_max,
                options.whole_bytes_max > 0 ? options.whole_bytes_max : options.block_bytes_max) {}

  void Clear();

  // Adds records, in any order; a record may come twice.
  // Errors: none
  Status Add(const file::RecordRun& run) override;

  // Approximate bytes that the plan will read: the pages added so far. A shared page that was added
  // since the last Settle counts each time it was added.
  uint64_t pending_bytes() const { return pending_bytes_; }

  // Makes pending_bytes exact and returns the number of extents so far, gaps not joined.
  // Cost: the first call as Finish, later calls in proportion to the records added since
  uint64_t Settle();

  // Assigns a buffer offset to every added record, and cuts the buffer into blocks. After this call
  // only CutBlocks and Clear may change the plan.
  // FinishInFile  uses file offsets instead, as ReadPlanOptions::is_in_place does
  // Cost: O(n) for records that are nearly in file order, O(n log n) otherwise
  void Finish();
  void FinishInFile();

  // Cuts other blocks for the same buffer. Requires: Finish was called
  void CutBlocks(const BlockCut& cut) { cutter_.Cut(extents_, cut); }

  // Lifetime of these spans: until the plan changes or ends; so a temporary plan has none. The
  // first three are as in BlockCutter.
  std::span<const PlannedBlock> blocks() const& { return cutter_.blocks(); }
  std::span<const PlannedBlock> blocks() && = delete;
  std::span<const PlannedExtent> parts() const& { return cutter_.parts(); }
  std::span<const PlannedExtent> parts() && = delete;
  std::span<const PlannedExtent> had() const& { return cutter_.had(); }
  std::span<const PlannedExtent> had() && = delete;
  std::span<const PlannedRun> runs() const& { return runs_; }
  std::span<const PlannedRun> runs() && = delete;
  std::span<const PlannedValue> values() const& { return values_; }
  std::span<const PlannedValue> values() && = delete;

  uint64_t read_bytes() const { return cutter_.read_bytes(); }  // of blocks()
  uint64_t buffer_bytes() const { return buffer_bytes_; }  // a multiple of kStretchAlignBytes; or 0
  uint64_t useful_bytes() const { return useful_bytes_; }  // of the pages that hold the records

 private:
  enum class Part : uint32_t { kLeaf, kHome, kValues };
  // A range of pages, and the run or the values that need it.
  struct Item {
    uint64_t begin = 0;  // bytes from the start of the file; page-aligned
    uint64_t end = 0;
    uint64_t owner = 0;  // index into runs_, or of the first value in values_
    uint32_t count = 0;  // of values; else 1
    Part part = Part::kLeaf;
  };

  bool Continues(const Item& item, uint64_t index, uint64_t begin) const;
  void ListItems();
  void SortItems();
  bool Extends(const CoalescedExtent& extent, const Item& item) const;
  void Place(const Item& item, const CoalescedExtent& extent);
  void CloseExtent(const CoalescedExtent& extent);
  uint64_t NeededBytes(uint64_t* extent_count) const;
  void PlaceAll();
  void PlaceItems();
  void PlaceValuesOnPages();

  ReadPlanOptions options_;
  std::vector<Item> items_;  // of the first itemized_runs_ runs
  size_t itemized_runs_ = 0;
  std::vector<Item> strays_, merged_;  // of SortItems
  std::vector<PlannedRun> runs_;
  std::vector<PlannedValue> values_;
  bool is_in_file_ = false;  // offsets are file offsets
  std::vector<CoalescedExtent> extents_;
  BlockCutter cutter_;
  uint64_t pending_bytes_ = 0;
  uint64_t gap_bytes_left_ = 0;  // that may still be read along
  uint64_t buffer_bytes_ = 0;
  uint64_t useful_bytes_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_READ_PLAN_H_
