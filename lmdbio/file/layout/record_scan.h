// lmdbio/file/layout/record_scan.h - one pass over all records, with checks of the whole tree.
//
// A Cursor checks each page that it reads. A scan also checks that no page or overflow run is
// reached twice, and that the tree holds as many records as its database record states, if that
// number is exact (Database::counts_exactly).
#ifndef LMDBIO_FILE_LAYOUT_RECORD_SCAN_H_
#define LMDBIO_FILE_LAYOUT_RECORD_SCAN_H_

#include "lmdbio/file/layout/cursor.h"

namespace lmdbio::file {

class RecordScan {
 public:
  // Cost: memory of one bit for each page of the file, and one page for each level of the tree
  explicit RecordScan(const Database& database)
      : database_(database),
        claims_(database.pages().snapshot().page_count()),
        cursor_(database_, &claims_) {}

  RecordScan(const RecordScan&) = delete;
  RecordScan& operator=(const RecordScan&) = delete;

  // Moves to the first record, then to the next; false after the last.
  // Requires: no earlier call failed
  // Errors:   kIo, kCorruption
  Result<bool> Next();

  uint64_t record_count() const { return record_count_; }  // so far

  // At the record that Next moved to: key(), Value(), ValueExtent(), position().
  Cursor& cursor() { return cursor_; }
  const Cursor& cursor() const { return cursor_; }

 private:
  Database database_;
  PageClaims claims_;
  Cursor cursor_;
  uint64_t record_count_ = 0;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_RECORD_SCAN_H_
