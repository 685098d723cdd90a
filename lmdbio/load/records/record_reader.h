// lmdbio/load/records/record_reader.h - records of an LMDB database by number, for one process.
//
//   LMDBIO_TRY(const auto reader, RecordReader::Open("train.lmdb", {}));
//   LMDBIO_TRY(const RecordSet records, reader->Read(numbers));
//   for (size_t i = 0; i < records.size(); ++i) Use(records[i].key, records[i].value);
//
// For programs that choose records themselves, as map-style datasets do. The records of one call
// are planned and read together, so many records cost little more than one. A loader knows the
// order in advance, and is faster.
//
// Source: docs/capi.md "Datasets".
#ifndef LMDBIO_LOAD_RECORDS_RECORD_READER_H_
#define LMDBIO_LOAD_RECORDS_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/records/record_fetch.h"

namespace lmdbio::load {

class FetchPool;

// The records of one call of Read, in the order of its numbers. Movable.
// Threads: one at a time; different sets are independent of each other
// Lifetime: keys and values live as long as the set, also after its reader has ended
class RecordSet {
 public:
  RecordSet(RecordSet&&) noexcept;
  RecordSet& operator=(RecordSet&&) noexcept;
  // Keeps the memory for the next read.
  ~RecordSet();

  size_t size() const { return fetch_->records().size(); }
  // Requires: i < size()
  const RecordView& operator[](size_t i) const& { return fetch_->records()[i]; }
  const RecordView& operator[](size_t i) && = delete;

 private:
  friend class RecordReader;
  RecordSet(std::shared_ptr<FetchPool> pool, std::unique_ptr<RecordFetch> fetch);
  void GiveBack() noexcept;

  std::shared_ptr<FetchPool> pool_;
  std::unique_ptr<RecordFetch> fetch_;  // not null, unless the set was moved from
};

// Threads: any. Reads of several threads run at the same time, and each has its own result.
class RecordReader {
 public:
  // path  a directory with data.mdb, or a data file
  // Errors: kInvalidArgument (an option is out of range), kNotFound, kPermission, kIo,
  //         kCorruption, kUnsupported, kResourceExhausted
  // Cost: a few small reads. Records are located by a provenance file if it fits; otherwise by a
  //       page walk, which runs in a thread while the first records are read
  static Result<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                    const RecordReaderOptions& options);
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  // The number of records, which count in key order. Each duplicate is a record.
  uint64_t record_count() const;

  // Reads records.
  // numbers  [each < record_count()] in any order; a number may occur several times
  // Returns: [numbers.size()] in the order of `numbers`
  // Errors: kInvalidArgument  a number is not below record_count()
  //         kIo, kCorruption, kStale; the reader can still be used
  //         kResourceExhausted  there is no memory or descriptor for another set, and no other
  //                             thread has destroyed one for a second
  // Cost: as many sets as exist at the same time have memory and an engine each; up to 16 of them
  //       are kept for later reads
  Result<RecordSet> Read(std::span<const uint64_t> numbers) const;

  // One line for each compromise, for example a stale provenance file. Each is returned once.
  std::vector<std::string> TakeNotes();

 private:
  explicit RecordReader(std::shared_ptr<FetchPool> pool);

  std::shared_ptr<FetchPool> pool_;  // the sets of this reader share it
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_RECORD_READER_H_
