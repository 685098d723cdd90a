// lmdbio/layout/record_scan.h - one pass over all records that proves the tree whole.
//
// A Cursor checks each page it meets. A scan also knows that it meets everything: that no page or
// overflow run is reached twice, and that the tree holds as many records as its description says,
// where that is to be believed (Database::counts_exactly).
#ifndef LMDBIO_LAYOUT_RECORD_SCAN_H_
#define LMDBIO_LAYOUT_RECORD_SCAN_H_

#include "lmdbio/layout/cursor.h"

namespace lmdbio::layout {

class RecordScan {
 public:
  // Memory: one bit for each page of the file, and a page for each level of the tree.
  explicit RecordScan(const Database& database)
      : database_(database),
        claims_(database.pages().snapshot().page_count()),
        cursor_(database_, &claims_) {}

  RecordScan(const RecordScan&) = delete;
  RecordScan& operator=(const RecordScan&) = delete;

  // Moves to the first record, then to the next; false after the last.
  // Errors: kIo, kCorruption; not to be called again after one
  Result<bool> Next();

  uint64_t record_count() const { return record_count_; }  // met so far

  // At the record that Next moved to: key(), Value(), ValueExtent(), position().
  Cursor& cursor() { return cursor_; }
  const Cursor& cursor() const { return cursor_; }

 private:
  Database database_;
  PageClaims claims_;
  Cursor cursor_;
  uint64_t record_count_ = 0;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_RECORD_SCAN_H_
