// lmdbio/load/records/record_fetch.h - one read of records by number or key, and what reads share.
//
// Several threads may read the same database at the same time, each with a RecordFetch of its own:
// a plan, memory and an engine. Locations, snapshot and leaf pages are shared.
//
// Source: docs/capi.md "Datasets".
#ifndef LMDBIO_LOAD_RECORDS_RECORD_FETCH_H_
#define LMDBIO_LOAD_RECORDS_RECORD_FETCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/files/snapshot_guard.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/plan/read_plan.h"
#include "lmdbio/load/records/found_leaves.h"
#include "lmdbio/load/records/listed_keys.h"
#include "lmdbio/load/records/sorted_keys.h"
#include "lmdbio/load/slots/leaf_cache.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/record_checker.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::load {

struct RecordReaderOptions {
  // Empty: the main database. For a path; a list has a name for each file.
  std::string database_name;
  SnapshotMode snapshot = SnapshotMode::kImmutable;
  file::EngineKind engine = file::EngineKind::kUring;
  file::CachePolicy cache = file::CachePolicy::kBuffered;
  uint32_t queue_depth = 32;       // reads in flight, for each thread that reads
  uint64_t block_bytes = 1 << 20;  // the largest read; a multiple of 4096
  std::string layout_cache;        // the folder of kept layouts and key indexes: KeptFolder::Of
  uint64_t open_files_max = 0;     // descriptors for a list of files; 0: OpenFilesMax
};

struct RecordView {
  Bytes key;
  Bytes value;

  // False: there is no record with the key that was asked for.
  bool is_found() const { return key.data() != nullptr; }
};

// LeafCache for several threads. Threads: any.
class SharedLeafCache {
 public:
  bool Has(const Extent& file) const;
  // Requires: Has of each of them. What the cache has, it keeps
  void CopyTo(std::span<const PlannedExtent> had, MutableBytes pages) const;
  void Keep(const Extent& file, Bytes bytes);

 private:
  mutable std::shared_mutex mutex_;
  LeafCache cache_;
};

// A database, or a list of them, whose records are read by number or key.
// Threads: any; only `leaves`, `notes` and `keys` change, and they have locks of their own.
class RecordFile {
 public:
  // Errors, cost: as RecordReader::Open
  static Result<std::unique_ptr<RecordFile>> Open(const std::vector<DatabasePath>& list,
                                                  const RecordReaderOptions& options);

  const std::string& name() const { return files_->name(); }
  uint64_t record_count() const { return record_count_; }
  const OpenedFiles& files() const { return *files_; }
  const SnapshotGuards& guard() const { return files_->guards(); }
  const RecordChecker& checker() const { return checker_; }
  // Passes the locations of records to `sink`. Errors: as Locator::Locate
  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) const {
    return locator_->Locate(first, count, sink);
  }
  ReadPlanOptions plan_options() const;
  Result<std::unique_ptr<file::BlockEngine>> OpenEngine() const;

  SharedLeafCache& leaves() { return leaves_; }
  Notes& notes() { return notes_; }
  ListedKeys& keys() { return keys_; }
  // Makes lookups use a key index: the kept one, or a new one, which is then kept.
  // Errors: kIo, kCorruption, kStale
  Status UseKeyIndex();

 private:
  RecordFile(RecordReaderOptions options, std::unique_ptr<OpenedFiles> files)
      : options_(std::move(options)), files_(std::move(files)), checker_(files_->pages()) {}
  Status Prepare();
  std::unique_ptr<Locator> MakeLocator(const file::Database& database);
  std::unique_ptr<Locator> MakeListLocator();
  void NoteOf(const Error& error);
  Result<std::optional<file::Layout>> FindLayout(const file::Database& database);
  std::function<void(const FinishedWalk&)> Keeping(const file::Database& database);
  Status UseKeyIndexOf(size_t file);

  const RecordReaderOptions options_;
  std::unique_ptr<OpenedFiles> files_;
  RecordChecker checker_;
  Notes notes_;  // before the locator, whose thread adds some
  std::unique_ptr<Locator> locator_;
  std::vector<std::unique_ptr<Locator>> of_files_;  // of a list; borrow the locator
  ListedKeys keys_;                                 // borrow the locators
  uint64_t record_count_ = 0;
  SharedLeafCache leaves_;
};

// Threads: one at a time.
class RecordFetch {
 public:
  // file  must outlive this
  // Errors: as file::OpenBlockEngine
  static Result<std::unique_ptr<RecordFetch>> Open(RecordFile& file);

  // Reads records. After an error only the destructor may be called.
  // numbers  [each < record_count(), or kNoRecord] in any order; a number may occur several times
  // Errors: kIo, kCorruption, kStale, kResourceExhausted
  Status Read(std::span<const uint64_t> numbers);

  // Reads the records of keys. Does not need their numbers.
  // Requires: a single database, which has no duplicates
  // Errors: as Read; kInvalidArgument  as file::KeySearch::Find
  Status Get(const SortedKeys& keys);

  // Of the last Read or Get, in the order of its numbers or keys. Lifetime: until the next one
  std::span<const RecordView> records() const { return records_; }

 private:
  explicit RecordFetch(RecordFile& file) : file_(file), plan_(file.plan_options()) {}
  Status Plan();
  Status PlanKeys(std::span<const Bytes> keys);
  Status PlanKey(const file::FoundLeaf& leaf, uint32_t node);
  Status CheckKeys(std::span<const Bytes> keys) const;
  Status Fetch();
  Status FetchBlocks();
  Status Check();
  Result<RecordView> CheckRecord(const PlannedRun& run, const file::LeafPage& leaf,
                                 uint64_t into_run) const;

  RecordFile& file_;
  ReadPlan plan_;
  std::unique_ptr<ranks::SharedMemory> memory_;
  std::unique_ptr<file::BlockEngine> engine_;  // after the memory it writes to
  // Of the last Read or Get:
  std::vector<uint64_t> sorted_;   // each number once; or the index of each key that was found
  FoundLeaves pages_;              // of the keys
  std::vector<RecordView> found_;  // of sorted_
  std::vector<RecordView> records_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_RECORD_FETCH_H_
