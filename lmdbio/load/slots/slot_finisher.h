// lmdbio/load/slots/slot_finisher.h - from fetched pages to records that a rank may use.
//
// The finisher checks every record (record_checker.h) before any rank sees it, and writes an entry
// for it. With records in place, several ranks check the heads of overflow runs (in_place_view.h).
//
// Source: docs/loader.md "Checks"; docs/format.md section 8.
#ifndef LMDBIO_LOAD_SLOTS_SLOT_FINISHER_H_
#define LMDBIO_LOAD_SLOTS_SLOT_FINISHER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/layout/page_reader.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/record_checker.h"
#include "lmdbio/load/slots/slot_planner.h"

namespace lmdbio::load {

// Threads: one at a time.
class SlotFinisher {
 public:
  // pages        of one or several files; the sources must outlive this
  // field_count  records of each sample. With OnError::kSkip a sample is left out as a whole
  SlotFinisher(file::JoinedPages pages, HostRanks ranks, OnError on_error,
               uint64_t field_count = 1);

  enum class ValueBytes {
    kInMemory,     // the finisher checks the heads of overflow runs
    kToBeMapped,   // in a map of this process: the finisher also touches the pages of the values
    kLeftToRanks,  // in a map: the ranks check the heads of overflow runs
  };

  // Writes the shares and entries of `slot` into the window memory.
  // ring        the window memory
  // bytes       the memory that holds the slot's pages: the window memory, the map of the file, or
  //             the file cache. The entries' offsets count from its start
  // bad_ranges  the parts of the slot's pages that could not be read; only with OnError::kSkip
  // Errors: kCorruption  with OnError::kRaise, the first record that is not what was planned
  Status Finish(const PlannedSlot& slot, MutableBytes ring, Bytes bytes, ValueBytes values_are,
                std::span<const BadRange> bad_ranges);

 private:
  Result<file::LeafPage> OpenRun(const PlannedSlot& slot, const PlannedRun& run) const;
  Status FinishRun(const PlannedSlot& slot, const PlannedRun& run);
  Result<RecordEntry> CheckRecord(const PlannedSlot& slot, const PlannedRun& run,
                                  const Result<file::LeafPage>& leaf, uint64_t value_index) const;
  Status FinishRecord(const PlannedSlot& slot, const PlannedRun& run,
                      const Result<file::LeafPage>& leaf, uint64_t value_index);
  BatchShare& ShareOf(const PlannedSlot& slot, uint64_t batch_index, uint64_t position,
                      uint64_t pass);
  void SortPasses(const PlannedSlot& slot);
  size_t LenderOf(size_t taker, uint64_t pass) const;
  size_t TakerOf(size_t lender, uint64_t pass) const;
  void BeginGroup(const PlannedSlot& slot);
  void BeginGroupsUpTo(const PlannedSlot& slot, size_t group_count);
  void NextRecord(const PlannedSlot& slot);
  void TakeEntry(BatchShare& share, const RecordEntry* entry);
  bool IsBad(uint64_t at, uint64_t length_bytes) const;

  // The share that got the last record, and the positions of the batch that belong to it. Most
  // records have the owner of the record before.
  struct OpenShare {
    uint64_t batch_index = 0;
    OwnedPositions positions;  // none at first
    size_t index = 0;          // into shares_
  };

  // The place of the next record.
  struct NextPlace {
    size_t range_index = 0;  // into the ranges of the slot
    uint64_t into_range = 0;
    uint64_t field = 0;
    bool is_sample_bad = false;  // an earlier record of the sample cannot be used
  };

  RecordChecker checker_;
  HostRanks ranks_;
  OnError on_error_;
  const uint64_t field_count_;
  std::vector<int> local_of_;  // [job ranks] index among local_ranks; -1 on another host

  // While a slot is being finished:
  Bytes bytes_;
  ValueBytes values_are_ = ValueBytes::kInMemory;
  std::span<const BadRange> bad_ranges_;
  std::span<BatchShare> shares_;
  std::span<RecordEntry> entries_;
  size_t groups_begun_ = 0;
  uint64_t first_batch_ = 0;  // of the last of these groups; counted within the slot
  OpenShare open_;
  uint64_t next_entry_ = 0;  // the first entry behind these groups
  NextPlace next_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_SLOT_FINISHER_H_
