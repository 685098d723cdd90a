// lmdbio/load/locate/locator.h - where records lie: four ways to know, one way to ask.
//
// Source: dissertation 2.4.2 and 3.2.2 (the cursor's walk), 5.2.1, 5.2.2 (provenance);
// docs/loader.md "Strategies".
#ifndef LMDBIO_LOAD_LOCATE_LOCATOR_H_
#define LMDBIO_LOAD_LOCATE_LOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmdbio/base/placement.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/load/locate/cursor_handoff.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/locate/location_broadcast.h"
#include "lmdbio/load/locate/shared_layout.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::load {

// Pages that were fetched on a guess: those that were needed and not among them, and those among
// them that were not needed (dissertation 4.3.3). Of all batches together.
struct LocatorCounters {
  uint64_t missed_pages = 0;
  uint64_t redundant_pages = 0;
  double fetch_s = 0;  // asleep for pages that were guessed
  double turn_s = 0;   // asleep until another host had sent its cursor or places
};

// Threads: one at a time.
class Locator {
 public:
  virtual ~Locator() = default;

  // How many records the database holds.
  // Errors: kIo, kCorruption
  // Cost: nothing, but in a database with duplicates, where only a whole walk knows
  virtual Result<uint64_t> RecordCount() = 0;

  // Hands the places of records [first, first + count) to `sink`.
  // Requires: the range lies within the database
  // Errors: kIo, kCorruption; kStale  the file has shrunk
  virtual Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) = 0;

  // Around the records of one group of batches, for those who look ahead or take turns with other
  // hosts; also where this host has no record in it.
  //
  // Expect    says which records the next group begins with. Never fails: what cannot be fetched
  //           now is fetched later.
  // IsReady   whether BeginGroup would return without sleeping for another host
  // BeginGroup returns false after Stop. Errors: kPeerFailed  another host's reader; as Locate
  // EndGroup  Errors: kPeerFailed
  // Drain     before this host's reader sleeps for something else: sleeps until the others have
  //           been sent what is theirs. Errors: kPeerFailed
  virtual void Expect(RecordIndex /*first*/, uint64_t /*count*/) {}
  virtual bool IsReady() { return true; }
  virtual Result<bool> BeginGroup(const load::BatchGroup& /*group*/) { return true; }
  virtual Status EndGroup() { return {}; }
  virtual Status Drain() { return {}; }

  // Tells other hosts' readers that this one cannot go on.
  virtual void Abandon(const Error& /*why*/) {}

  // Ends BeginGroup and Locate, some time. Any thread.
  virtual void Stop() {}

  // Any thread.
  virtual LocatorCounters counters() const { return {}; }
};

// Moves a cursor over a map of the file, from record to record, as LMDB does. The next record is
// cheap; a jump reads every leaf page up to its target.
// handoff  if readers of several hosts share one cursor; else null
// Errors: kIo, kCorruption, ... of opening the file
Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name,
                                                   std::unique_ptr<CursorHandoff> handoff);

// Where one reader walks for those of all hosts.
// walker        of the reader that walks: how it finds records; else none
// record_count  of the database
std::unique_ptr<Locator> MakeBroadcastLocator(std::unique_ptr<Locator> walker,
                                              std::unique_ptr<load::LocationBroadcast> places,
                                              uint64_t record_count);

// Looks records up in a layout that is there already.
// host  where the host's other readers look for it; else none; borrowed
std::unique_ptr<Locator> MakeLayoutLocator(file::Layout layout, load::SharedLayout* host = nullptr);

// Looks records up in the layout that `provenance` describes, which is computed when the first of
// them is asked for.
// provenance  fits the database
// path        of its file, for messages
// host        where the host's other readers look for the layout; else none; borrowed
std::unique_ptr<Locator> MakeProvenanceLocator(file::Provenance provenance, std::string path,
                                               load::SharedLayout* host);

// Walks the leaf pages in a thread of its own, ahead of what is asked for, and keeps the layout.
// database  its source must outlive the locator
// ring      where hosts share the walk; else none. Where another host goes, this one walks on alone
// host      where the host's other readers look for what is found; else none; borrowed
// cores     that the thread runs on; none: any
std::unique_ptr<Locator> MakeScanLocator(const file::Database& database,
                                         std::unique_ptr<load::LayoutAllGather> ring,
                                         load::SharedLayout* host, CoreList cores = {});

// Looks records up in what another reader of the host finds.
// host          borrowed
// make_own      how to find records alone, where the host's layout has no room for all
// record_count  of the database
std::unique_ptr<Locator> MakeHostLayoutLocator(
    const load::SharedLayout& host, std::function<Result<std::unique_ptr<Locator>>()> make_own,
    uint64_t record_count);

// The provenance file beside `database`.
std::string ProvenancePathOf(const file::Database& database);
// Errors: kNotFound    there is none
//         kStale       it was made for another database or another state; names the field
//         kCorruption, kUnsupported, kIo, kPermission
Result<file::Provenance> ReadProvenance(const file::Database& database);
// The layout that it describes. Errors: as ReadProvenance
Result<file::Layout> LayoutFromProvenance(const file::Database& database);

// The number of records, by a whole walk where LMDB's count is only a hint.
// Errors: kIo, kCorruption
Result<uint64_t> CountRecords(const file::Database& database);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_LOCATOR_H_
