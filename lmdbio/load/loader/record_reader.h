// lmdbio/load/loader/record_reader.h - records of an LMDB database by number, for one process.
//
//   LMDBIO_TRY(const auto reader, RecordReader::Open("train.lmdb", {}));
//   LMDBIO_TRY(const auto records, reader->Read(numbers));
//   for (const RecordView& record : records) Use(record.key, record.value);
//
// For programs that choose records themselves, as map-style datasets do. The records of one call
// are planned and read together, so many records cost little more than one. A loader knows the
// order in advance, and is faster.
//
// Source: docs/capi.md "Datasets".
#ifndef LMDBIO_LOAD_LOADER_RECORD_READER_H_
#define LMDBIO_LOAD_LOADER_RECORD_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/plan/read_plan.h"
#include "lmdbio/load/slots/leaf_cache.h"
#include "lmdbio/load/slots/record_checker.h"
#include "lmdbio/load/slots/snapshot_guard.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

struct RecordReaderOptions {
  std::string database_name;  // empty: the main database
  SnapshotMode snapshot = SnapshotMode::kImmutable;
  file::EngineKind engine = file::EngineKind::kUring;
  file::CachePolicy cache = file::CachePolicy::kBuffered;
  uint32_t queue_depth = 32;       // reads in flight
  uint64_t block_bytes = 1 << 20;  // the largest read; a multiple of 4096
};

struct RecordView {
  Bytes key;
  Bytes value;
};

// Threads: one at a time.
class RecordReader {
 public:
  // path  a directory with data.mdb, or a data file
  // Errors: kInvalidArgument (an option is out of range), kNotFound, kPermission, kIo,
  //         kCorruption, kUnsupported, kResourceExhausted
  // Cost: a few small reads. Records are located by a provenance file if it fits; otherwise by a
  //       page walk, which runs in a thread while the first records are read
  static Result<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                    const RecordReaderOptions& options);

  // The number of records, which count in key order. Each duplicate is a record.
  uint64_t record_count() const { return record_count_; }

  // Reads records.
  // numbers  [each < record_count()] in any order; a number may occur several times
  // Returns: [numbers.size()] in the order of `numbers`
  // Lifetime: of the result: until the next Read, or until the reader ends
  // Errors: kInvalidArgument  a number is not below record_count()
  //         kIo, kCorruption, kStale, kResourceExhausted; the reader can still be used
  Result<std::span<const RecordView>> Read(std::span<const uint64_t> numbers);

  // One line for each compromise, for example a stale provenance file. Each is returned once.
  std::vector<std::string> TakeNotes();

 private:
  RecordReader(std::unique_ptr<file::FileSource> source, SnapshotGuard guard)
      : source_(std::move(source)),
        guard_(std::move(guard)),
        checker_(guard_.environment().pages()) {}
  Status Prepare(const std::string& data_path, const RecordReaderOptions& options);
  Status CheckNumbers(std::span<const uint64_t> numbers);
  Status Plan();
  Status Fetch();
  Status FetchBlocks();
  Status Check();
  Result<RecordView> CheckRecord(const PlannedRun& run, const file::LeafPage& leaf,
                                 uint64_t into_run) const;

  std::unique_ptr<file::FileSource> source_;
  SnapshotGuard guard_;
  RecordChecker checker_;
  std::unique_ptr<Locator> locator_;
  uint64_t record_count_ = 0;
  std::vector<std::string> notes_;
  std::optional<ReadPlan> plan_;
  std::unique_ptr<ranks::SharedMemory> memory_;
  LeafCache leaves_;
  std::unique_ptr<file::BlockEngine> engine_;  // after the memory it writes to

  // Of the last Read:
  std::vector<uint64_t> sorted_;    // each number once
  std::vector<RecordView> found_;   // of sorted_
  std::vector<RecordView> result_;  // in the order of the call
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_RECORD_READER_H_
