// lmdbio/load/records/record_reader.h - records of an LMDB database by number or by key, for one
// process.
//
//   LMDBIO_TRY(const auto reader, RecordReader::Open("train.lmdb", {}));
//   LMDBIO_TRY(const RecordSet records, reader->Read(numbers));
//   for (size_t i = 0; i < records.size(); ++i) Use(records[i].key, records[i].value);
//
// With a view, numbers are those of samples, and each sample has one or several records.
//
// For programs that choose records themselves, as map-style datasets do. The records of one call
// are planned and read together, so many records cost little more than one. A loader knows the
// order in advance, and is faster.
//
// Source: docs/capi.md "Datasets"; docs/keys.md; docs/views.md.
#ifndef LMDBIO_LOAD_RECORDS_RECORD_READER_H_
#define LMDBIO_LOAD_RECORDS_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/records/record_fetch.h"
#include "lmdbio/load/view/sample_index.h"
#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

class FetchPool;

// The records of one call of Read or Get, in the order of its numbers or keys. Movable.
// Threads: one at a time; different sets are independent of each other
// Lifetime: keys and values live as long as the set, also after its reader has ended
class RecordSet {
 public:
  RecordSet(RecordSet&&) noexcept;
  RecordSet& operator=(RecordSet&&) noexcept;
  // Keeps the memory for the next read.
  ~RecordSet();

  size_t size() const { return records_.size(); }
  // Requires: i < size()
  const RecordView& operator[](size_t i) const& { return records_[i]; }
  const RecordView& operator[](size_t i) && = delete;

 private:
  friend class RecordReader;
  RecordSet(std::shared_ptr<FetchPool> pool, std::unique_ptr<RecordFetch> fetch);
  // The records of several databases.
  // parts    own keys and values
  // records  of the parts, in the order of the set
  RecordSet(std::vector<RecordSet> parts, std::vector<RecordView> records);
  void GiveBack() noexcept;

  std::shared_ptr<FetchPool> pool_;
  std::unique_ptr<RecordFetch> fetch_;  // null: the set has parts, or was moved from
  std::vector<RecordSet> parts_;
  std::vector<RecordView> joined_;  // of the parts
  std::span<const RecordView> records_;
};

// Threads: any. Reads of several threads run at the same time, and each has its own result.
class RecordReader {
 public:
  // path  a directory with data.mdb, or a data file; a directory of them, or a glob
  // view  null: each record is a sample. Other databases that it names are opened with `options`
  // Errors: kInvalidArgument (an option is out of range, or files are not alike), kNotFound,
  //         kPermission, kIo, kCorruption, kUnsupported, kResourceExhausted; with a view, those of
  //         View::Resolve, too
  // Cost: a few small reads; with a view, all leaf pages. Records are located by a provenance file
  //       or a kept layout if it fits; otherwise by a page walk, which begins with the first call
  //       that needs locations, and runs in a thread while the first records are read
  static Result<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                    const RecordReaderOptions& options,
                                                    const ViewSpec* view = nullptr);
  // The same for a list of databases, whose records follow each other (docs/many_files.md). A file
  // may come several times.
  // list  not empty; options.database_name has no effect
  // Cost: a few small reads of each file
  static Result<std::unique_ptr<RecordReader>> Open(const std::vector<DatabasePath>& list,
                                                    const RecordReaderOptions& options,
                                                    const ViewSpec* view = nullptr);
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  // The number of records, which count in key order, file after file. Each duplicate is a record.
  uint64_t record_count() const;
  // The number of samples: of the view; without one, of the records.
  uint64_t sample_count() const;
  // The number of records of each sample; 1 without a view.
  size_t field_count() const { return view_ ? view_->field_count() : 1; }
  // Null: none.
  const View* view() const { return view_ ? &*view_ : nullptr; }

  // Reads samples.
  // numbers  [each < sample_count()] in any order; a number may occur several times
  // Returns: [numbers.size() * field_count()] in the order of `numbers`, and in a sample in the
  //          order of its fields
  // Errors: kInvalidArgument  a number is not below sample_count()
  //         kIo, kCorruption, kStale; the reader can still be used
  //         kResourceExhausted  there is no memory or descriptor for another set, and no other
  //                             thread has destroyed one for a second
  // Cost: as many sets as exist at the same time have memory and an engine each; up to 16 of them
  //       are kept for later reads
  Result<RecordSet> Read(std::span<const uint64_t> numbers) const;

  // The number of the sample with the record of each key.
  // keys  in any order; of any size; a key may come several times
  // Returns: [keys.size()] for a key with duplicates the number of the first, and how many they
  //          are; for an absent key kNoRecord and 0. With a view: the first sample that has the
  //          record, in any of its fields, and 1; kNoRecord and 0 if there is none
  // Errors: kInvalidArgument  the database has integer keys of another size
  //         kCorruption  a damaged page; or the database was sorted by a function of its own, which
  //                      the file does not record; kIo, kStale
  // Cost: one descent for all keys: for each level of the tree one batch of reads; branch pages are
  //       kept. The first call sleeps until all records are located (see Open)
  Result<std::vector<KeyNumber>> Find(std::span<const Bytes> keys) const;

  // The number of values of each key in the database; 0 for an absent one. Does not need the
  // locations of the records if the database has no duplicates.
  // Returns: [keys.size()]
  // Errors: as Find
  // Cost: a descent, as Find
  Result<std::vector<uint64_t>> CountValues(std::span<const Bytes> keys) const;

  // Reads the record of each key, also of one that belongs to no sample: of a key with duplicates
  // the first.
  // Returns: [keys.size()] in the order of `keys`; records that are not is_found() are absent
  // Errors: as Find and Read
  // Cost: a descent as that of Find, and one read of the values together. Does not need the
  //       locations of the records if the database has no duplicates
  Result<RecordSet> Get(std::span<const Bytes> keys) const;

  // Makes Find, CountValues and Get use an index from the hashes of all keys to the numbers, from
  // now on. Without one they go down the tree. The index is the kept one (layout_cache), or a new
  // one, which is then kept. Does nothing if there is one already.
  // Errors: kIo, kCorruption, kStale; lookups then go down the tree
  // Cost: 8 bytes of memory for each key; a new index reads all leaf pages
  Status UseKeyIndex();

  // Copies the keys of samples [first, first + count). The key of duplicates comes once for each.
  // Returns: [count * field_count()] as Read
  // Errors: kInvalidArgument  the range ends beyond sample_count(); kIo, kCorruption, kStale
  // Cost: reads their leaf pages, and none of the values that lie elsewhere
  Result<KeyList> ReadKeys(uint64_t first, uint64_t count) const;

  // One line for each compromise, for example a stale provenance file. Each is returned once.
  std::vector<std::string> TakeNotes();

 private:
  // The files of the view, or of a field that is of others, and the number that their first record
  // has among those of all of them.
  struct NumberedPool {
    std::shared_ptr<FetchPool> pool;
    uint64_t first_record = 0;
  };
  // The records of one source, and their places in a result.
  struct OfSource {
    std::vector<uint64_t> numbers;  // in the source
    std::vector<size_t> places;
  };

  explicit RecordReader(std::shared_ptr<FetchPool> pool);
  Status OpenView(const std::vector<DatabasePath>& list, const RecordReaderOptions& options,
                  const ViewSpec& spec);
  std::vector<uint64_t> RecordsOf(std::span<const uint64_t> samples) const;
  std::vector<OfSource> BySource(std::span<const uint64_t> records) const;
  static Result<RecordSet> ReadFrom(const std::shared_ptr<FetchPool>& pool,
                                    std::span<const uint64_t> records);
  Result<RecordSet> ReadView(std::span<const uint64_t> samples) const;
  Result<KeyList> ReadKeysOfView(uint64_t first, uint64_t count) const;
  Result<std::vector<KeyNumber>> FindInView(std::span<const Bytes> keys) const;
  Result<RecordSet> GetByIndex(const file::KeyIndex& index, std::span<const Bytes> keys) const;

  std::shared_ptr<FetchPool> pool_;    // of the reader's own database; its sets share it
  std::vector<NumberedPool> sources_;  // of the view, `pool_` first; empty without one
  std::optional<View> view_;
  mutable std::once_flag has_samples_;
  mutable std::optional<SampleIndex> samples_;  // of view_, once has_samples_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_RECORD_READER_H_
