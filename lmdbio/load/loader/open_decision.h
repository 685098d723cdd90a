// lmdbio/load/loader/open_decision.h - what the ranks of a job must agree upon before they read.
//
// Job rank 0 looks at the file and decides; everybody else takes its word, and readers check that
// their own view of the file is the same.
//
// Source: docs/loader.md "Opening".
#ifndef LMDBIO_LOAD_LOADER_OPEN_DECISION_H_
#define LMDBIO_LOAD_LOADER_OPEN_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/slot_planner.h"
#include "lmdbio/load/turns/stagger.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

struct OpenDecision {
  uint64_t record_count = 0;
  uint64_t page_bytes_total = 0;                // of the pages that hold the database's records
  PageNo root;                                  // of the database
  std::optional<file::Snapshot> snapshot;       // always there once rank 0 has looked
  LocateMethod locating = LocateMethod::kNone;  // never kBest
  file::EngineKind engine = file::EngineKind::kUring;
  file::CachePolicy cache = file::CachePolicy::kBuffered;
  bool is_in_place = false;  // records are looked at in a map of the file; no engine
};
static_assert(std::is_trivially_copyable_v<OpenDecision>);

// Where the stream of these options and this database begins: the same on every rank, whatever the
// ranks are. Of `facts` only what LookAtDatabase finds in the database itself is used.
// Requires: CheckOptions has passed
// Errors: of a saved state: kInvalidArgument, kStale (docs/order.md "State")
Result<load::StreamState> StreamFor(const OpenDecision& facts, const LoaderOptions& options);

// Where that stream would go on where `saved` stands. Errors: as StreamFor
Result<load::StreamState> ContinueFrom(const std::string& saved, const OpenDecision& facts,
                                       const LoaderOptions& options);

// Errors: kInvalidArgument  a number beyond all positions
Status CheckEpoch(uint64_t epoch, uint64_t positions_per_epoch);

// How the storage is to be asked. Errors: kInvalidArgument  names the option
Status CheckReads(uint32_t queue_depth, uint64_t block_bytes);

// Errors: kInvalidArgument  names the option
Status CheckOptions(const LoaderOptions& options);

// Collective. Errors: kInvalidArgument  a rank has other options than rank 0; names rank and option
Status CheckSameOptions(ranks::Group& group, const LoaderOptions& options);

// What this process alone can say of `database`; `locating` is left to the caller.
// data_path  of the file itself
// Errors: kInvalidArgument (empty; batch larger than the database where that gives no batch), kIo,
//         kCorruption
Result<OpenDecision> LookAtDatabase(const file::Database& database, const std::string& data_path,
                                    const LoaderOptions& options);

// Errors: kStale  this host sees another file than rank 0
Status CheckSameFile(const OpenDecision& facts, const file::Snapshot& snapshot,
                     const std::string& data_path);

// Of the leaf and overflow pages of `database`.
uint64_t PageBytesOf(const file::Database& database);

// Which slots are looked at in memory that keeps the file.
// room_bytes  free memory of the host that has least
FileCaching KeepingFor(const OpenDecision& facts, const LoaderOptions& options,
                       uint64_t room_bytes);

// Whether the readers of a job may have to take turns.
bool MayStagger(const OpenDecision& facts, const LoaderOptions& options);

// How they do; no numbers of tokens if they need not.
// reader_count  of the job
load::StaggerOptions StaggerFor(const LoaderOptions& options, uint64_t reader_count);

// How slots are cut for a host with `local_count` of `rank_count` ranks.
// ring_bytes  of the window
SlotLimits LimitsFor(const OpenDecision& facts, const LoaderOptions& options,
                     const load::Schedule& schedule, int local_count, int rank_count,
                     uint64_t ring_bytes);

load::ReadPlanOptions PlanOptionsFor(const OpenDecision& facts, const LoaderOptions& options,
                                     const file::Snapshot& snapshot);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_OPEN_DECISION_H_
