// check_records PATH: reads every record of a database through lmdbio and through liblmdb, compares
// them byte for byte, and prints how fast each goes through the file.
#include <lmdb.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/io/data_path.h"
#include "lmdbio/io/map_source.h"
#include "lmdbio/io/read_ahead_source.h"
#include "lmdbio/layout/cursor.h"

namespace {

constexpr int kRounds = 7;

using lmdbio::Bytes;
using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;

// What a pass over all records found; equal for two readers that saw the same.
struct Pass {
  uint64_t record_count = 0;
  uint64_t value_bytes = 0;
  uint64_t word_sum = 0;
  double seconds = 0;
};

uint64_t SumWords(Bytes value) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= value.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, value.data() + i, 8);
    sum += word;
  }
  return sum;
}

// liblmdb's cursor over the main database, opened and closed by this object.
class LmdbReader {
 public:
  explicit LmdbReader(const std::string& data_path) {
    rc_ = mdb_env_create(&environment_);
    if (rc_ == 0) {
      rc_ =
          mdb_env_open(environment_, data_path.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR, 0);
    }
    if (rc_ == 0) rc_ = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_);
    MDB_dbi database = 0;
    if (rc_ == 0) rc_ = mdb_dbi_open(transaction_, nullptr, 0, &database);
    if (rc_ == 0) rc_ = mdb_cursor_open(transaction_, database, &cursor_);
  }
  ~LmdbReader() {
    if (cursor_ != nullptr) mdb_cursor_close(cursor_);
    if (transaction_ != nullptr) mdb_txn_abort(transaction_);
    if (environment_ != nullptr) mdb_env_close(environment_);
  }
  LmdbReader(const LmdbReader&) = delete;
  LmdbReader& operator=(const LmdbReader&) = delete;

  Result<bool> Next() {
    if (rc_ == 0) rc_ = mdb_cursor_get(cursor_, &key_, &value_, MDB_NEXT);
    if (rc_ == MDB_NOTFOUND) return false;
    if (rc_ != 0) return Fail(ErrorCode::kInternal, fmt::format("liblmdb: {}", mdb_strerror(rc_)));
    return true;
  }
  Bytes key() const { return {static_cast<const std::byte*>(key_.mv_data), key_.mv_size}; }
  Bytes value() const { return {static_cast<const std::byte*>(value_.mv_data), value_.mv_size}; }

 private:
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
  MDB_val key_{}, value_{};
  int rc_ = 0;
};

template <typename Work>
Result<Pass> Timed(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  Result<Pass> pass = work();
  if (pass) {
    pass->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return pass;
}

Result<Pass> ReadWithLmdb(const std::string& data_path) {
  Pass pass;
  LmdbReader reader(data_path);
  for (;;) {
    LMDBIO_TRY(const bool found, reader.Next());
    if (!found) return pass;
    ++pass.record_count;
    pass.value_bytes += reader.value().size();
    pass.word_sum += SumWords(reader.value());
  }
}

template <typename Source>
Result<Pass> ReadWithLmdbio(const std::string& data_path) {
  LMDBIO_TRY(const auto source, Source::Open(data_path));
  source->Advise(lmdbio::AccessPattern::kSequential);
  LMDBIO_TRY(const auto environment, lmdbio::layout::Environment::Open(*source));
  lmdbio::layout::Cursor cursor(environment.Main());
  Pass pass;
  LMDBIO_TRY(bool found, cursor.First());
  while (found) {
    LMDBIO_TRY(const Bytes value, cursor.Value());
    ++pass.record_count;
    pass.value_bytes += value.size();
    pass.word_sum += SumWords(value);
    LMDBIO_TRY(found, cursor.Next());
  }
  return pass;
}

bool Equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

Status CompareEveryRecord(const std::string& data_path) {
  LMDBIO_TRY(const auto source, lmdbio::io::ReadAheadSource::Open(data_path));
  LMDBIO_TRY(const auto environment, lmdbio::layout::Environment::Open(*source));
  lmdbio::layout::Cursor cursor(environment.Main());
  LmdbReader reader(data_path);
  LMDBIO_TRY(bool ours, cursor.First());
  LMDBIO_TRY(bool theirs, reader.Next());
  for (uint64_t record = 0; ours || theirs; ++record) {
    const auto differs = [&] {
      return Fail(ErrorCode::kInternal, fmt::format("record {} differs from liblmdb's", record));
    };
    if (ours != theirs) return differs();
    LMDBIO_TRY(const Bytes value, cursor.Value());
    if (!Equal(cursor.key(), reader.key()) || !Equal(value, reader.value())) return differs();
    LMDBIO_TRY(ours, cursor.Next());
    LMDBIO_TRY(theirs, reader.Next());
  }
  return {};
}

void Print(const char* reader, std::vector<Pass> passes) {
  std::ranges::sort(passes, {}, &Pass::seconds);
  const Pass& pass = passes[passes.size() / 2];
  fmt::print("  {:<28} {:>12.0f} records/s {:>9.0f} MB/s\n", reader,
             static_cast<double>(pass.record_count) / pass.seconds,
             static_cast<double>(pass.value_bytes) / 1e6 / pass.seconds);
}

Status Run(const std::string& path) {
  LMDBIO_TRY(const std::string data_path, lmdbio::io::FindDataFile(path));
  LMDBIO_TRY_VOID(CompareEveryRecord(data_path));
  // The comparison has brought the file into the page cache: all passes are warm. The readers take
  // turns, so that whatever else the machine does meets each of them.
  std::vector<Pass> lmdb, map, read_ahead;
  for (int round = 0; round < kRounds; ++round) {
    LMDBIO_TRY(lmdb.emplace_back(), Timed([&] { return ReadWithLmdb(data_path); }));
    LMDBIO_TRY(map.emplace_back(),
               Timed([&] { return ReadWithLmdbio<lmdbio::io::MapSource>(data_path); }));
    LMDBIO_TRY(read_ahead.emplace_back(),
               Timed([&] { return ReadWithLmdbio<lmdbio::io::ReadAheadSource>(data_path); }));
    for (const Pass& pass : {map.back(), read_ahead.back()}) {
      if (pass.record_count != lmdb[0].record_count || pass.word_sum != lmdb[0].word_sum) {
        return Fail(ErrorCode::kInternal, "the passes found different records");
      }
    }
  }
  fmt::print("{} records, {} bytes: every key and value equals liblmdb's\n", lmdb[0].record_count,
             lmdb[0].value_bytes);
  fmt::print("warm passes over all of them, median of {}:\n", kRounds);
  Print("liblmdb", lmdb);
  Print("lmdbio, map", map);
  Print("lmdbio, explicit reads", read_ahead);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: check_records PATH\n");
    return 2;
  }
  const Status status = Run(argv[1]);
  if (status) return 0;
  std::fprintf(stderr, "check_records: %s\n", status.error().message().c_str());
  return 1;
}
