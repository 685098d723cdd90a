// lmdbio/load/view/key_stream.h - the keys of a database, in order, with their record numbers.
//
// Branch and leaf pages are read, in large batches, and no value. In a database with duplicates,
// the key comes once for each of them.
//
// Source: docs/views.md "Flow".
#ifndef LMDBIO_LOAD_VIEW_KEY_STREAM_H_
#define LMDBIO_LOAD_VIEW_KEY_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/page_batch.h"
#include "lmdbio/file/layout/record_scan.h"

namespace lmdbio::load {

// Threads: one at a time. Memory: the leaf page numbers, and some MiB.
class KeyStream {
 public:
  // Copies `database`; its source must outlive this.
  explicit KeyStream(const file::Database& database);
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  // Moves to the first record, then to the next; false after the last.
  // Requires: no earlier call failed or returned false
  // Errors:   kIo, kCorruption
  Result<bool> Next();

  // Of the record that Next moved to. Lifetime: until Next
  Bytes key() const { return key_; }
  uint64_t number() const { return number_; }

  const file::Database& database() const { return database_; }

 private:
  Result<bool> NextDuplicate();
  Status ReadLeaves();

  const file::Database database_;
  file::PageBatch batch_;
  std::unique_ptr<file::RecordScan> scan_;  // of a database with duplicates
  std::optional<std::vector<PageNo>> leaves_;
  size_t next_leaf_ = 0;
  // Of the pages that were read last:
  std::vector<std::byte> bytes_;  // one key after the other
  std::vector<uint64_t> ends_;    // where each key ends in bytes_
  size_t next_key_ = 0;
  Bytes key_;
  uint64_t number_ = 0;
  uint64_t count_ = 0;  // of records so far
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_KEY_STREAM_H_
