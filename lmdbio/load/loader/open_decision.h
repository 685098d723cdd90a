// lmdbio/load/loader/open_decision.h - the values on which all ranks agree when a loader opens.
//
// Job rank 0 looks at the file and decides. The other ranks receive its decision, and readers check
// that they see the same file. The functions below derive everything else from the decision and the
// options, so that every rank computes the same result.
//
// Source: docs/loader.md "Opening".
#ifndef LMDBIO_LOAD_LOADER_OPEN_DECISION_H_
#define LMDBIO_LOAD_LOADER_OPEN_DECISION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/load/plan/block_cutter.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/slot_planner.h"
#include "lmdbio/load/turns/stagger.h"
#include "lmdbio/load/view/view.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

// The time of a single read from which on `auto` saves requests: by a joint walk, by an exchange
// between hosts, or by large direct reads in place of records in a map. Local drives take 0.1 ms,
// storage behind a network 1 ms.
inline constexpr double kSlowReadSeconds = 0.0003;

// Broadcast as bytes. Constant once the loader has opened. Of a list of files, counts and sizes are
// those of all files together, and the snapshot is that of the first file with the end of the last
// one as file size.
struct OpenDecision {
  uint64_t file_count = 1;
  // That the stream counts: records of all files, or samples of the view.
  uint64_t record_count = 0;
  uint64_t located_count = 0;                   // records of all files
  uint64_t field_count = 1;                     // records of each sample
  std::optional<uint64_t> view_digest = {};     // set if there is a view
  uint64_t page_bytes_total = 0;                // of the pages that hold the records of all samples
  PageNo root;                                  // of the database
  std::optional<file::Snapshot> snapshot;       // set once rank 0 has decided
  LocateMethod locating = LocateMethod::kNone;  // never kBest
  file::EngineKind engine = file::EngineKind::kUring;
  file::CachePolicy cache = file::CachePolicy::kBuffered;
  ReadCost read_cost;           // with ReadSizing::kFromBudget: as rank 0 has measured
  bool is_in_place = false;     // records are used in a map; the engine reads missing ones
  bool is_kept_layout = false;  // kProvenance by the layout that an earlier job kept
  bool exchanges = false;       // hosts read parts of the file for each other
};
static_assert(std::is_trivially_copyable_v<OpenDecision>);

// The order and the start of the stream. Uses only the fields of `facts` that describe the
// database, so the result does not depend on ranks or hosts.
// files   of a list; empty for a single file
// Requires: CheckOptions has passed
// Errors: of a saved state: kInvalidArgument, kStale (docs/order.md "State")
Result<StreamState> StreamFor(const OpenDecision& facts, const LoaderOptions& options,
                              const std::vector<FileIdentity>& files = {});

// The stream that continues at the saved state `saved`. Errors: as StreamFor
Result<StreamState> ContinueFrom(const std::string& saved, const OpenDecision& facts,
                                 const LoaderOptions& options,
                                 const std::vector<FileIdentity>& files = {});

// Checks the number of an epoch. Errors: kInvalidArgument  its positions would overflow
Status CheckEpoch(uint64_t epoch, uint64_t positions_per_epoch);

// Measures that are taken only if the cached share does not decide.
struct InPlaceMeasures {
  std::function<uint64_t()> room_bytes;    // the free memory, cached files counted
  std::function<Result<double>()> read_s;  // the time of a single direct read
};

// Whether so much of the file is in the page cache that it is used in place (docs/loader.md "Cached
// files"). A failure to measure means no.
bool IsCachedEnough(const file::CacheProbe& probe, Order order, uint64_t file_bytes,
                    const InPlaceMeasures& measures);

// Checks all options. Errors: kInvalidArgument  names the option
Status CheckOptions(const LoaderOptions& options);

// Checks that all ranks have the same options. Collective over `group`.
// Errors: kInvalidArgument  a rank has other options than rank 0; names rank and option
Status CheckSameOptions(ranks::Group& group, const LoaderOptions& options);

// Decides everything except `locating`, which is left to the caller.
// Errors: kInvalidArgument  the databases hold no records
//         kUnsupported      the strategy, the engine or an option does not work with several files;
//                           names it
//         kIo, kCorruption
Result<OpenDecision> LookAtFiles(const OpenedFiles& files, const LoaderOptions& options,
                                 const HostMember& member, Notes& notes);

// Errors: kInvalidArgument  the strategy cannot serve a view
Status CheckServesView(const LoaderOptions& options);

// Takes over what the stream needs to know of `view`.
// sources  the databases of the view
// Errors: kInvalidArgument  the view has no sample
Status TakeView(const View& view, std::span<const ViewDatabase> sources,
                const std::string& data_path, OpenDecision& facts);

// Errors: kInvalidArgument  there are fewer samples than a batch has, with Tail::kDrop
Status CheckHasBatch(const OpenDecision& facts, const std::string& data_path,
                     const LoaderOptions& options);

// Errors: kStale  this host has resolved another view than rank 0
Status CheckSameResolved(const OpenDecision& facts, const View& view, const std::string& data_path);

// Checks that all ranks have the same view. Collective over `group`.
// spec  null: none
// Errors: kInvalidArgument  names a rank with another view than rank 0
Status CheckSameView(ranks::Group& group, const ViewSpec* spec);

// Errors: kStale  this host sees another file than rank 0
Status CheckSameFile(const OpenDecision& facts, const file::Snapshot& snapshot,
                     const std::string& data_path);

// True if the hosts may read parts of the file for each other: of a single file, in key order, with
// one reader on each of several hosts, which takes no turns, and with blocks of at most
// kExchangeChunkBytesMax.
bool MayExchange(const OpenDecision& facts, const LoaderOptions& options, const HostMember& member);

// Whether they do. With `auto`, measures the storage.
// Requires: facts.snapshot, engine, cache and is_in_place are set
bool WantsExchange(const OpenDecision& facts, const LoaderOptions& options,
                   const HostMember& member, const std::string& data_path);

// True if each rank finds and checks its own records, in its own thread: in place, with provenance,
// and with several ranks on the host. Options of the reading thread keep the thread.
bool ReadsAlone(const OpenDecision& facts, const LoaderOptions& options, const HostMember& member);

// The bytes of the leaf and overflow pages of `database`.
uint64_t PageBytesOf(const file::Database& database);

// The slots that the file cache keeps.
// room_bytes  the free memory of the host that has the least of it
FileCaching KeepingFor(const OpenDecision& facts, const LoaderOptions& options,
                       uint64_t room_bytes);

// As file::MeasureStorageCost. A file that is too small for a measurement, or that cannot be
// measured, gets default costs; the second with a note.
ReadCost MeasureReads(const std::string& data_path, const file::EngineOptions& engine,
                      uint64_t file_bytes, uint64_t block_bytes, Notes& notes);

// The bytes of the pages that the stream will need; no limit for a stream without end.
uint64_t StreamBytes(const OpenDecision& facts, const LoaderOptions& options);

// True if the readers of a job may have to take turns.
bool MayStagger(const OpenDecision& facts, const LoaderOptions& options);

// The staggering of the readers. No numbers of tokens: they take no turns.
// reader_count  of the job
StaggerOptions StaggerFor(const LoaderOptions& options, uint64_t reader_count);

// The sizes of slots for a host with `local_count` of the `rank_count` ranks of the job. Leaves
// `keeping` to the caller.
// ring_bytes  the window memory
SlotLimits LimitsFor(const OpenDecision& facts, const LoaderOptions& options,
                     const Schedule& schedule, int local_count, int rank_count,
                     uint64_t ring_bytes);

// Makes slots smaller, and reuses their memory sooner, so that the readers of a host need about
// half of its free memory. A single batch may need more.
void LimitToRoom(uint64_t room_bytes, SlotLimits& limits);

// limits, reader_count  of the host
ReadPlanOptions PlanOptionsFor(const OpenDecision& facts, const LoaderOptions& options,
                               const file::Snapshot& snapshot, const SlotLimits& limits,
                               int reader_count);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_OPEN_DECISION_H_
