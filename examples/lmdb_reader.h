// The reader through liblmdb and the result of a pass, for check_records and compare_lmdb.
#ifndef LMDBIO_EXAMPLES_LMDB_READER_H_
#define LMDBIO_EXAMPLES_LMDB_READER_H_

#include <lmdb.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>

#include <fmt/format.h>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace examples {

// Two readers of the same records get equal sums, in any order.
struct Pass {
  uint64_t record_count = 0;
  uint64_t value_bytes = 0;
  uint64_t word_sum = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // processor time of the calling thread

  void Add(lmdbio::Bytes value) {
    ++record_count;
    value_bytes += value.size();
    for (size_t i = 0; i + 8 <= value.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, value.data() + i, 8);
      word_sum += word;
    }
  }
};

inline double ThreadCpuSeconds() {
  timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Times work(), which opens the database and returns a Result<Pass>.
template <typename Work>
lmdbio::Result<Pass> Timed(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  const double cpu_begin = ThreadCpuSeconds();
  lmdbio::Result<Pass> pass = work();
  if (pass) {
    pass->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    pass->cpu_seconds = ThreadCpuSeconds() - cpu_begin;
  }
  return pass;
}

// Owns a cursor of liblmdb over the main database.
class LmdbReader {
 public:
  explicit LmdbReader(const std::string& data_path, unsigned flags = 0) {
    rc_ = mdb_env_create(&environment_);
    if (rc_ == 0) {
      rc_ = mdb_env_open(environment_, data_path.c_str(),
                         MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR | flags, 0);
    }
    if (rc_ == 0) rc_ = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_);
    if (rc_ == 0) rc_ = mdb_dbi_open(transaction_, nullptr, 0, &database_);
    if (rc_ == 0) rc_ = mdb_cursor_open(transaction_, database_, &cursor_);
  }
  ~LmdbReader() {
    if (cursor_ != nullptr) mdb_cursor_close(cursor_);
    if (transaction_ != nullptr) mdb_txn_abort(transaction_);
    if (environment_ != nullptr) mdb_env_close(environment_);
  }
  LmdbReader(const LmdbReader&) = delete;
  LmdbReader& operator=(const LmdbReader&) = delete;

  bool has_duplicates() const {
    unsigned flags = 0;
    return rc_ == 0 && mdb_dbi_flags(transaction_, database_, &flags) == 0 &&
           (flags & MDB_DUPSORT) != 0;
  }

  lmdbio::Result<bool> Next() {
    if (rc_ == 0) rc_ = mdb_cursor_get(cursor_, &key_, &value_, MDB_NEXT);
    return Found();
  }
  lmdbio::Result<bool> Get(const std::string& key) {
    key_ = {key.size(), const_cast<char*>(key.data())};  // liblmdb only reads the key
    if (rc_ == 0) rc_ = mdb_get(transaction_, database_, &key_, &value_);
    return Found();
  }
  lmdbio::Bytes key() const { return {static_cast<const std::byte*>(key_.mv_data), key_.mv_size}; }
  lmdbio::Bytes value() const {
    return {static_cast<const std::byte*>(value_.mv_data), value_.mv_size};
  }

 private:
  lmdbio::Result<bool> Found() const {
    if (rc_ == MDB_NOTFOUND) return false;
    if (rc_ == 0) return true;
    return lmdbio::Fail(lmdbio::ErrorCode::kInternal,
                        fmt::format("liblmdb: {}", mdb_strerror(rc_)));
  }

  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;
  MDB_cursor* cursor_ = nullptr;
  MDB_val key_{}, value_{};
  int rc_ = 0;
};

}  // namespace examples
#endif  // LMDBIO_EXAMPLES_LMDB_READER_H_
