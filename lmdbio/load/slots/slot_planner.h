// lmdbio/load/slots/slot_planner.h - cuts the sequence into slots, each with a read plan and a
// reservation of window memory.
//
// A slot is one filling of the window: one or more batch groups. Every reader of a host computes
// the same slots from the same arguments, so no message is needed.
//
// Source: dissertation 5.2.3 (several batches in one read, under a memory budget); docs/loader.md
// "Slots".
#ifndef LMDBIO_LOAD_SLOTS_SLOT_PLANNER_H_
#define LMDBIO_LOAD_SLOTS_SLOT_PLANNER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/plan/read_plan.h"
#include "lmdbio/load/plan/window_allocator.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// The ranks of the job on this host, and the division of batches among ranks.
struct HostRanks {
  int rank_count = 1;            // of the job
  std::vector<int> local_ranks;  // [ranks of the host] job ranks, ascending
  Share share = Share::kBlock;
  ReuseAmong reuse_among = ReuseAmong::kRank;
};

// Consecutive records in the epoch order that this host needs from one batch group.
struct GroupRange {
  uint64_t group_index = 0;  // within the slot
  uint64_t first = 0;        // counted from the group's first record
  uint64_t count = 0;
};

struct PlannedSlot {
  explicit PlannedSlot(const ReadPlanOptions& options) : plan(options) {}

  uint64_t number = 0;
  std::vector<BatchSpan> batches;
  std::vector<BatchGroup> groups;  // of these batches
  // The samples of the plan's values, in the same order.
  std::vector<GroupRange> ranges;
  uint64_t run_count = 0;    // runs of consecutive records in these ranges
  uint64_t entry_count = 0;  // records, each as often as it is handed out
  bool is_scattered = false;
  bool is_kept = false;  // its pages are used in the file cache
  ReadPlan plan;
  uint64_t free_after = 0;  // slots that the ranks must release before this one may be filled
  uint64_t pages_at = 0;    // the plan's buffer in the window memory; 0 if the pages lie elsewhere
  Extent reserved;          // of the window memory, for shares, entries and pages
  SlotHead head;
};

// If the extents of a slot are shorter than this on average, gaps between them may be worth
// reading.
inline constexpr uint64_t kScatteredBelowBytes = 64 << 10;
// A scattered slot with this many records takes no further batch. Its plan then takes 40 to 60 MB
// of the reader's memory, beside the window.
inline constexpr uint64_t kScatteredRecordsMax = 256 << 10;

enum class FileCaching { kNone, kScattered, kAll };

struct SlotLimits {
  uint64_t target_bytes = 8 << 20;  // a slot of this size takes no further group
  uint64_t group_count_max = 0;     // of one slot; 0: no limit
  uint64_t group_bytes = 0;         // the mean size of the host's pages of a group
  uint64_t stream_batches = 0;      // of the whole stream; 0: no end
  // A slot with scattered records may grow to this size: with more records, the gaps between them
  // are smaller. 0: no slot grows.
  uint64_t scattered_bytes_max = 0;
  // The slots whose pages are used in the file cache (file_cache.h).
  FileCaching keeping = FileCaching::kNone;
  bool expects_scattered =
      false;                // consecutive records of the order are never neighbours in the file
  uint64_t wrap_bytes = 0;  // see WindowAllocator
  uint64_t ring_bytes = 0;
  bool is_in_place = false;  // see ReadPlanOptions
  uint64_t field_count = 1;  // records of each sample: the locator passes as many
};

// Threads: one at a time.
class SlotPlanner {
 public:
  // locator  borrowed
  // first_batch  the first batch that a rank needs; the first slot begins with its group
  SlotPlanner(const Schedule& schedule, uint64_t first_batch, HostRanks ranks, Locator& locator,
              const SlotLimits& limits);

  // Plans the next slot; false at the end of the stream.
  // Errors: of the locator; kResourceExhausted  a batch needs more than the memory budget
  Result<bool> Next(PlannedSlot& slot);

  // Whether Next would return without sleeping for another host.
  bool IsReady() { return locator_.IsReady(); }
  // Sleeps until all messages for other hosts are sent. Errors: kPeerFailed
  Status Drain() { return locator_.Drain(); }
  // As Locator::CopyWalked and HasWalked.
  bool CopyWalked(const Extent& file, MutableBytes to) { return locator_.CopyWalked(file, to); }
  bool HasWalked() const { return locator_.HasWalked(); }
  // Sends the failure of this reader to other hosts.
  void Abandon(const Error& why) { locator_.Abandon(why); }
  // Makes Next return false soon. Any thread.
  void Stop() { locator_.Stop(); }
  // Any thread.
  LocatorCounters counters() const { return locator_.counters(); }

 private:
  void LookAhead(uint64_t number);
  WalkRun RunAt(uint64_t at, uint64_t count_max);
  Result<bool> AddGroup(const BatchGroup& group, PlannedSlot& slot);
  Result<bool> AddGroupsUpTo(uint64_t target_bytes, PlannedSlot& slot);
  bool HasEnoughRecords(const PlannedSlot& slot) const;
  bool IsScattered(const PlannedSlot& slot, uint64_t extent_count) const;
  Status AddRange(const BatchGroup& group, const GroupRange& range, PlannedSlot& slot);
  Status Place(PlannedSlot& slot);

  Schedule schedule_;
  HostRanks ranks_;
  Locator& locator_;
  SlotLimits limits_;
  WindowAllocator allocator_;
  uint64_t next_batch_;                  // the first of a group
  bool has_looked_ahead_ = false;        // at the first group
  std::optional<EpochWalk> walk_;        // of the epoch that was used last
  std::vector<GroupRange> next_ranges_;  // of the next group, after LookAhead
  uint64_t next_slot_ = 0;
  uint64_t largest_bytes_ = 0;  // the largest reservation so far; only in place
  uint32_t growth_ = 2;         // a scattered slot may have target_bytes << growth_
};

// The records of `group` that belong to the host, ascending; consecutive records form one range.
// (group_index is left 0.)
// Requires: a group of several batches only with Share::kBlock
std::vector<GroupRange> HostRanges(const BatchGroup& group, const HostRanks& ranks);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_SLOT_PLANNER_H_
