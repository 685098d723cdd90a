// lmdbio/load/slots/slot_planner.h - the sequence cut into slots, each with its plan and its place.
//
// A slot is one filling of the window: one or more groups of batches. Every reader of a host
// computes the same slots from the same arguments and so needs no word from the others.
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

// Which ranks of the job live on this host, and how batches are shared.
struct HostRanks {
  int rank_count = 1;            // of the job
  std::vector<int> local_ranks;  // [ranks of the host] job ranks, ascending
  load::Share share = load::Share::kBlock;
  load::ReuseAmong reuse_among = load::ReuseAmong::kRank;
};

// What this host needs of one group of batches: records that follow each other in the walk.
struct GroupRange {
  uint64_t group_index = 0;  // within the slot
  uint64_t first = 0;        // counted from the group's first record
  uint64_t count = 0;
};

struct PlannedSlot {
  explicit PlannedSlot(const load::ReadPlanOptions& options) : plan(options) {}

  uint64_t number = 0;
  std::vector<load::BatchSpan> batches;
  std::vector<load::BatchGroup> groups;  // of these batches
  // What the plan's values stand for, in the same order.
  std::vector<GroupRange> ranges;
  uint64_t run_count = 0;    // of neighbouring records that they are
  uint64_t entry_count = 0;  // records, each as often as it is handed out
  bool is_scattered = false;
  bool is_kept = false;  // its pages are looked at in memory for the whole file
  load::ReadPlan plan;
  uint64_t free_after = 0;  // slots that must have been let go before it may be filled
  uint64_t pages_at = 0;    // of the plan's buffer, in the ring; in place: 0, of the map
  SlotHead head;
};

// Records whose stretches of the file are shorter than this, in the mean, may be worth reading what
// lies between them.
inline constexpr uint64_t kScatteredBelowBytes = 64 << 10;
// A scattered slot with so many records takes no further batch. Its plan then fills 40 to 60 MB of
// the reader's memory, beside the window.
inline constexpr uint64_t kScatteredRecordsMax = 256 << 10;

enum class FileCaching { kNone, kScattered, kAll };

struct SlotLimits {
  uint64_t target_bytes = 8 << 20;  // groups are added to a slot until it holds so much
  uint64_t group_count_max = 0;     // of one slot; 0: no limit
  uint64_t stream_batches = 0;      // of the whole stream; 0: no end
  // Slots whose records lie scattered over the file may grow to this, because the more of them are
  // fetched at once, the less lies between them; 0: no slot does.
  uint64_t scattered_bytes_max = 0;
  // Which slots are looked at in memory that keeps the file (file_cache.h).
  FileCaching keeping = FileCaching::kNone;
  bool expects_scattered = false;  // no two records that follow each other are neighbours
  uint64_t wrap_bytes = 0;         // see WindowAllocator
  uint64_t ring_bytes = 0;
  bool is_in_place = false;  // see load::ReadPlanOptions
};

// Threads: one at a time.
class SlotPlanner {
 public:
  // locator  borrowed
  // first_batch  the first that anybody needs: the first slot begins with its group
  SlotPlanner(const load::Schedule& schedule, uint64_t first_batch, HostRanks ranks,
              Locator& locator, const SlotLimits& limits);

  // Plans the next slot; false at the end of the stream.
  // Errors: of the locator; kResourceExhausted  a batch needs more than the memory budget
  Result<bool> Next(PlannedSlot& slot);

  // Whether Next would return without sleeping for another host.
  bool IsReady() { return locator_.IsReady(); }
  // Sleeps until other hosts have what this one tells them. Errors: kPeerFailed
  Status Drain() { return locator_.Drain(); }
  // Tells other hosts that this one cannot go on.
  void Abandon(const Error& why) { locator_.Abandon(why); }
  // Ends Next, which then says that the stream has ended. Any thread.
  void Stop() { locator_.Stop(); }
  // Any thread.
  LocatorCounters counters() const { return locator_.counters(); }

 private:
  void LookAhead(uint64_t number);
  load::WalkRun RunAt(uint64_t place, uint64_t count_max);
  Result<bool> AddGroup(const load::BatchGroup& group, PlannedSlot& slot);
  Result<bool> AddGroupsUpTo(uint64_t target_bytes, PlannedSlot& slot);
  bool HasEnoughRecords(const PlannedSlot& slot) const;
  bool IsScattered(const PlannedSlot& slot, uint64_t stretch_count) const;
  Status AddRange(const load::BatchGroup& group, const GroupRange& range, PlannedSlot& slot);
  Status Place(PlannedSlot& slot);

  load::Schedule schedule_;
  HostRanks ranks_;
  Locator& locator_;
  SlotLimits limits_;
  WindowAllocator ring_;
  uint64_t next_batch_;                  // the first of a group
  bool has_looked_ahead_ = false;        // at that group
  std::optional<load::EpochWalk> walk_;  // of the epoch that was last asked for
  std::vector<GroupRange> next_ranges_;  // of that group, once it was looked at
  uint64_t next_slot_ = 0;
  uint32_t growth_ = 2;  // scattered slots double from target_bytes so often
};

// The records of `group` that belong to the host, ascending, neighbours together.
// (group_index is left 0.)
// Requires: a group of several batches only with Share::kBlock
std::vector<GroupRange> HostRanges(const load::BatchGroup& group, const HostRanks& ranks);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_SLOT_PLANNER_H_
