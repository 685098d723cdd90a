// lmdbio/loader/lmdb_stream.h - the baseline: every rank steps liblmdb's cursor over all records.
//
// What Caffe does, and what the papers call LMDB: each rank maps the file, walks from record to
// record, passes over what the others need, and takes its own. The kernel fetches pages as they are
// touched. Values are handed out where liblmdb's map has them.
//
// Source: dissertation 2.4.2, 3.1 (the baseline); docs/loader.md "Strategies".
#ifndef LMDBIO_LOADER_LMDB_STREAM_H_
#define LMDBIO_LOADER_LMDB_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/loader/window.h"
#include "lmdbio/order/schedule.h"

struct MDB_cursor;
struct MDB_env;
struct MDB_txn;
struct MDB_val;

namespace lmdbio::loader {

// Threads: one at a time.
class LmdbStream {
 public:
  // data_path  of the data file itself. Opened without locks (MDB_NOLOCK).
  // Errors: kNotFound, kPermission, kUnsupported (data version 3), kCorruption: liblmdb's words
  static Result<std::unique_ptr<LmdbStream>> Open(const std::string& data_path,
                                                  const std::string& database_name);
  ~LmdbStream();
  LmdbStream(const LmdbStream&) = delete;
  LmdbStream& operator=(const LmdbStream&) = delete;

  // Takes the steps of whole epochs before `position` as taken. Before the first Gather.
  void SkipEpochs(uint64_t position, uint64_t record_count) {
    step_count_ = position / record_count * record_count;
  }

  // Steps through `group` and gathers the records of `rank` of `rank_count`. Groups must come in
  // order, each handed out once; what lies between them (Tail::kDrop) is passed over. Entries'
  // offsets count from base().
  // entries  of the group's batches, one after the other; all hold the same number
  // Errors: kResourceExhausted  more than 2^32 records for one rank; kCorruption  liblmdb's words
  // Lifetime: of the stream
  Status Gather(const order::BatchGroup& group, order::Share share, int rank, int rank_count,
                std::vector<Entry>& entries);

  // An address; see Entry.
  std::uintptr_t base() const { return base_; }

  double locate_s() const { return locate_s_; }  // stepping
  double read_s() const { return read_s_; }      // touching the pages of own values

 private:
  explicit LmdbStream(std::string path) : path_(std::move(path)) {}
  Status OpenCursor(const std::string& database_name);
  Status StepTo(uint64_t position, MDB_val& key, MDB_val& value);
  void Touch(const void* value, size_t value_bytes);

  std::string path_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
  uint64_t step_count_ = 0;  // the cursor stands on the position before it
  bool is_placed_ = false;   // the cursor
  std::uintptr_t base_ = 0;
  double locate_s_ = 0;
  double read_s_ = 0;
  unsigned touched_ = 0;
};

}  // namespace lmdbio::loader
#endif  // LMDBIO_LOADER_LMDB_STREAM_H_
