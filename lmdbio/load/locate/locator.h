// lmdbio/load/locate/locator.h - one interface to the locations of records, with several
// implementations.
//
// Source: dissertation 2.4.2 and 3.2.2 (the cursor's walk), 5.2.1, 5.2.2 (provenance);
// docs/loader.md "Strategies".
#ifndef LMDBIO_LOAD_LOCATE_LOCATOR_H_
#define LMDBIO_LOAD_LOCATE_LOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/load/locate/cursor_handoff.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/locate/location_broadcast.h"
#include "lmdbio/load/locate/shared_layout.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::load {

// The counters of all batches together (dissertation 4.3.3). Times are seconds.
struct LocatorCounters {
  uint64_t missed_pages = 0;        // needed, but not among the guessed ones
  uint64_t redundant_pages = 0;     // guessed, but not needed
  double fetch_s = 0;               // asleep for guessed pages
  double turn_s = 0;                // asleep until another host has sent its cursor or locations
  double copy_wait_s = 0;           // asleep in CopyWalked
  file::EngineCounters reads = {};  // of blocks that the locator hands over (CopyWalked)
};

// Consecutive records.
struct RecordRange {
  uint64_t first = 0;
  uint64_t count = 0;
  // True if the two have a record in common.
  bool Meets(const RecordRange& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
};

// The result of a complete walk. Borrowed for the call.
struct FinishedWalk {
  std::span<const PageNo> leaves;  // in key order
  uint64_t record_count = 0;
  std::function<Status(file::RecordRunSink&)> expand;  // hands over all records
};

// A walk that reads the values along with the leaf pages (walked_source.h).
struct JointWalk {
  std::string data_path;
  file::EngineOptions engine;
  uint64_t stream_bytes = ~uint64_t{0};  // of the pages that the stream will need
  // The walk is joint only if a read of branch pages takes at least this long. On faster storage
  // single reads of leaf pages cost less than copies of the values.
  double slow_read_s = 0;
};

struct ScanOptions {
  CoreList cores = {};  // for the walking thread; empty: any
  // If the walk may read values along with leaf pages, for a stream in key order from the first
  // record on. Requires: the walk is not shared
  std::optional<JointWalk> joint = {};
  // Called in the walking thread after a complete walk. May be empty.
  std::function<void(const FinishedWalk&)> on_walked = {};
};

// A database of a list of files, for a scan over all of them (docs/many_files.md).
struct ScanFile {
  file::Database database;  // its source must outlive the locator
  PageNo first_page;        // the number that its page 0 has in the list
  // The layout of the database if it is known without a walk: nothing if there is none. Called in
  // the walking thread. May be empty.
  // Errors: end the scan
  std::function<Result<std::optional<file::Layout>>()> find_layout = {};
  // As ScanOptions::on_walked.
  std::function<void(const FinishedWalk&)> on_walked = {};
};

// Threads: one at a time. Exceptions: Locate, VisitRuns and RecordCount of a layout locator, and of
// a scan locator without a joint walk, may be called by any number of threads.
class Locator {
 public:
  virtual ~Locator() = default;

  // The number of records of the database.
  // Errors: kIo, kCorruption
  // Cost: a walk over the whole tree in a database with duplicates, otherwise nothing
  virtual Result<uint64_t> RecordCount() = 0;

  // Passes the locations of records [first, first + count) to `sink`.
  // Requires: the range lies within the database
  // Errors: kIo, kCorruption; kStale  the file has shrunk
  virtual Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) = 0;

  // Calls `visit` for the runs that have records of `range`, in order, without their values. Sleeps
  // until all records are located. Only a layout locator and a scan locator do this.
  // Errors: as Locate; kUnsupported
  virtual Status VisitRuns(RecordRange range,
                           const std::function<void(const file::RunLocation&)>& visit);

  // The caller brackets the Locate calls of each batch group, also of a group without a record of
  // this host. Locators that read ahead, or that take turns with other hosts, need this.
  //
  // Expect      announces the first records of the next group. Never fails: pages that cannot be
  //             fetched now are fetched later.
  // IsReady     true if BeginGroup would return without sleeping for another host
  // BeginGroup  false after Stop. Errors: kPeerFailed  another host's reader failed; as Locate
  // EndGroup    Errors: kPeerFailed
  // Drain       to be called before the reader sleeps for something else: sleeps until all messages
  //             for other hosts are sent. Errors: kPeerFailed
  virtual void Expect(RecordIndex /*first*/, uint64_t /*count*/) {}
  virtual bool IsReady() { return true; }
  virtual Result<bool> BeginGroup(const BatchGroup& /*group*/) { return true; }
  virtual Status EndGroup() { return {}; }
  virtual Status Drain() { return {}; }

  // Copies bytes of the file that the locator has read already, or will read soon: it then sleeps
  // until they are there. False if it does not have them. Only a joint walk has (block_pool.h).
  // file  [not empty]
  virtual bool CopyWalked(const Extent& /*file*/, MutableBytes /*to*/) { return false; }
  // False: CopyWalked has nothing for now.
  virtual bool HasWalked() const { return false; }

  // Sends the failure of this reader to the readers of other hosts.
  virtual void Abandon(const Error& /*why*/) {}

  // Makes BeginGroup and Locate return soon. Any thread.
  virtual void Stop() {}

  // Any thread.
  virtual LocatorCounters counters() const { return {}; }
};

// The pages that a cursor requests from the kernel before it needs them.
enum class CursorFetch {
  kValues,  // of the next group, values included: the caller copies them from the map (4.2.2)
  kLeaves,  // leaf pages ahead of the cursor: the caller reads the values itself (5.2.1)
};

// Moves a cursor over a map of the file, from record to record, as LMDB does. The next record is
// cheap; a jump reads every leaf page up to its target.
// handoff  if readers of several hosts share one cursor; else null
// Errors: kIo, kCorruption, ... of opening the file
Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name,
                                                   CursorFetch fetch,
                                                   std::unique_ptr<CursorHandoff> handoff);

// One reader walks for all hosts and sends the locations.
// walker        locates the records for the reader that walks; null on the other readers
// record_count  of the database
std::unique_ptr<Locator> MakeBroadcastLocator(std::unique_ptr<Locator> walker,
                                              std::unique_ptr<LocationBroadcast> broadcast,
                                              uint64_t record_count);

// Looks records up in `layout`.
// host  gets the layout for the other readers of the host; null if there are none; borrowed
std::unique_ptr<Locator> MakeLayoutLocator(file::Layout layout, SharedLayout* host = nullptr);

// Looks records up in the layout that `provenance` describes. The first Locate computes it.
// provenance  fits the database
// path        of its file, for messages
// host        gets the layout for the other readers of the host; null if there are none; borrowed
std::unique_ptr<Locator> MakeProvenanceLocator(file::Provenance provenance, std::string path,
                                               SharedLayout* host);

// Walks the leaf pages in a thread of its own, ahead of the reads, and keeps the layout.
// database  its source must outlive the locator
// gather    if hosts share the walk; else null. If a host leaves, this one continues alone
// host      gets the layout for the other readers of the host; null if there are none; borrowed
std::unique_ptr<Locator> MakeScanLocator(const file::Database& database,
                                         std::unique_ptr<LayoutAllGather> gather,
                                         SharedLayout* host, ScanOptions options = {});

// The same for the databases of a list, one after the other. Records are numbered in the order of
// the list. A database whose layout is known is not walked.
// files    not empty; of one page format
// gather   requires that no database has find_layout
// options  `joint` for a single file only; on_walked is not used
std::unique_ptr<Locator> MakeScanLocator(std::vector<ScanFile> files,
                                         std::unique_ptr<LayoutAllGather> gather,
                                         SharedLayout* host, ScanOptions options = {});

// The records of one file of a list, with the numbers and pages of the file itself.
// all    locates the records of the list; borrowed
// range  the records of the file among those of the list
// first  the number that its page 0 has in the list
std::unique_ptr<Locator> MakeFileLocator(Locator& all, RecordRange range, PageNo first,
                                         uint64_t page_bytes);

// Looks records up in the layout that another reader of the host publishes.
// host          borrowed
// make_own      makes a locator for this reader alone, if the shared layout has no room for all
//               records
// record_count  of the database
std::unique_ptr<Locator> MakeHostLayoutLocator(
    const SharedLayout& host, std::function<Result<std::unique_ptr<Locator>>()> make_own,
    uint64_t record_count);

// The provenance file beside `database`.
std::string ProvenancePathOf(const file::Database& database);
// The provenance of `database` in the file at `path`: ProvenancePathOf, or another.
// Errors: kNotFound    there is no provenance file
//         kStale       the file belongs to another database or state; names the field
//         kCorruption, kUnsupported, kIo, kPermission
Result<file::Provenance> ReadProvenance(const file::Database& database, const std::string& path);
// The layout that this provenance describes. Errors: as ReadProvenance
Result<file::Layout> LayoutFromProvenance(const file::Database& database, const std::string& path);

// The number of records. Walks the whole tree if LMDB's count is only a hint.
// Errors: kIo, kCorruption
Result<uint64_t> CountRecords(const file::Database& database);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_LOCATOR_H_
