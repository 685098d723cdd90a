// lmdbio/file/layout/database.h - the databases inside one data file.
//
//   Environment   a data file: one snapshot, its main database and the named ones inside it
//   Database      one tree of records
//
// Source: dissertation 2.4.2; docs/format.md sections 2 and 5.
#ifndef LMDBIO_FILE_LAYOUT_DATABASE_H_
#define LMDBIO_FILE_LAYOUT_DATABASE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdbio/file/format/key_order.h"
#include "lmdbio/file/layout/page_reader.h"

namespace lmdbio::file {

// One tree of records. Copyable; borrows the source of its environment.
class Database {
 public:
  Database(const PageReader& pages, std::string name, const DatabaseRecord& record)
      : pages_(pages), name_(std::move(name)), record_(record) {}

  // Of a temporary database: copies, which may outlive it.
  const PageReader& pages() const& { return pages_; }
  PageReader pages() && { return pages_; }
  const std::string& name() const& { return name_; }  // empty: the main database
  std::string name() && { return std::move(name_); }
  const DatabaseRecord& record() const& { return record_; }
  DatabaseRecord record() && { return record_; }
  // The number of records as LMDB counted them: exact, but a hint only in a database with
  // duplicates.
  uint64_t entry_count() const { return record_.entry_count; }
  bool counts_exactly() const { return record_.counts_exactly(); }
  // True if `found`, the number of records of a whole pass, agrees with the counted number, or if
  // that number is only a hint.
  bool AcceptsRecordCount(uint64_t found) const {
    return !counts_exactly() || found == entry_count();
  }
  KeyOrder key_order() const { return KeyOrderOf(record_.flags); }

 private:
  PageReader pages_;
  std::string name_;
  DatabaseRecord record_;
};

class Environment {
 public:
  // Takes a snapshot of the data file behind `source`.
  // Errors:   as TakeSnapshot
  // Lifetime: `source` must outlive the environment and all databases and cursors opened from it
  static Result<Environment> Open(const ByteSource& source);
  static Result<Environment> Open(const ByteSource&& source) = delete;

  // Of a temporary environment: copies, which may outlive it.
  const Snapshot& snapshot() const& { return pages_.snapshot(); }
  Snapshot snapshot() && { return pages_.snapshot(); }
  const PageReader& pages() const& { return pages_; }
  PageReader pages() && { return pages_; }

  Database Main() const { return Database(pages_, "", snapshot().meta.main); }

  // The list of free pages, as a database: keys are transactions, values page numbers.
  // Errors: kCorruption
  Result<Database> FreeList() const;

  // The named database `name`.
  // Errors: kNotFound         no such name
  //         kInvalidArgument  the key `name` holds a record, not a database
  //         kCorruption, kIo
  Result<Database> Named(std::string_view name) const;

  // The names of all named databases, in key order.
  // Errors: kIo, kCorruption
  // Cost: reads the main database's branch and leaf pages
  Result<std::vector<std::string>> Names() const;

  // As file/layout/snapshot.h CheckSnapshotHolds.
  // Errors: kStale, kIo, kCorruption
  Status CheckHolds() const { return CheckSnapshotHolds(pages_.source(), snapshot()); }

 private:
  explicit Environment(const PageReader& pages) : pages_(pages) {}
  PageReader pages_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_DATABASE_H_
