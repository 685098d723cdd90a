#include "tests/file/layout/whole_reading.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {
namespace {

using file::Cursor;
using file::Database;

void Fold(uint64_t& hash, uint64_t number) {
  hash = (hash ^ number) * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 29;
}

uint64_t HashOf(Bytes bytes) { return std::hash<std::string_view>()(AsText(bytes)); }

struct RecordHash {
  uint64_t shape = 0;
  uint64_t content = 0;
};

void Fold(WholeReading& reading, const RecordHash& record) {
  ++reading.record_count;
  Fold(reading.shape, record.shape);
  Fold(reading.content, record.content);
}

Result<RecordHash> HashRecord(Cursor& cursor) {
  RecordHash record;
  LMDBIO_TRY(const Bytes value, cursor.Value());
  Fold(record.shape, cursor.key().size());
  Fold(record.shape, value.size());
  Fold(record.shape, cursor.is_named_database() ? 1 : 0);
  record.content = record.shape;
  Fold(record.content, HashOf(cursor.key()));
  // A database record is not the value of a record. The reading covers its tree instead.
  if (!cursor.is_named_database()) Fold(record.content, HashOf(value));
  return record;
}

Status Scan(const Database& database, WholeReading& reading) {
  file::RecordScan scan(database);
  for (;;) {
    LMDBIO_TRY(const bool found, scan.Next());
    if (!found) return {};
    LMDBIO_TRY(const RecordHash record, HashRecord(scan.cursor()));
    Fold(reading, record);
  }
}

Status ScanBackwards(const Database& database, WholeReading& reading) {
  Cursor cursor(database);
  std::vector<RecordHash> records;
  LMDBIO_TRY(bool found, cursor.Last());
  while (found) {
    LMDBIO_TRY(const RecordHash record, HashRecord(cursor));
    records.push_back(record);
    LMDBIO_TRY(found, cursor.Prev());
  }
  std::for_each(records.rbegin(), records.rend(),
                [&](const RecordHash& record) { Fold(reading, record); });
  return {};
}

// Fetches the values of a walk and checks the heads of overflow runs.
class ValueFetcher final : public file::RecordRunSink {
 public:
  ValueFetcher(const file::PageReader& pages, WholeReading& reading)
      : pages_(pages), reading_(reading) {}

  Status Add(const file::RecordRun& run) override {
    for (size_t i = 0; i < run.values.size(); ++i) {
      LMDBIO_TRY(const Bytes value, Fetch(run.values[i], run.home));
      RecordHash record;
      Fold(record.shape, run.key_bytes[i]);
      Fold(record.shape, value.size());
      record.content = record.shape;
      // A walk does not mark database records among the values; no other value has their size.
      if (value.size() != file::kDatabaseRecordBytes) Fold(record.content, HashOf(value));
      Fold(reading_, record);
    }
    return {};
  }

 private:
  Result<Bytes> Fetch(Extent value, PageNo home) {
    if (value.length_bytes == 0) return Bytes();  // may start at the end of its page
    if (value.offset / pages_.page_format().page_size_bytes() != home.value) {
      return pages_.ReadOverflow(value, buffer_);
    }
    buffer_.resize(value.length_bytes);
    return pages_.source().Read(value, buffer_);
  }

  const file::PageReader& pages_;
  WholeReading& reading_;
  std::vector<std::byte> buffer_;
};

Status Walk(const Database& database, WholeReading& reading) {
  ValueFetcher fetcher(database.pages(), reading);
  LMDBIO_TRY_VOID(file::WalkDatabase(database, fetcher));
  return {};
}

Status ReadRecords(const Database& database, Door door, WholeReading& reading) {
  switch (door) {
    case Door::kScan:
      return Scan(database, reading);
    case Door::kWalk:
      return Walk(database, reading);
    case Door::kBackwards:
      return ScanBackwards(database, reading);
  }
  return {};
}

// A record that has moved from one database to another is a difference too.
Status ReadDatabase(const Database& database, Door door, WholeReading& reading) {
  LMDBIO_TRY_VOID(ReadRecords(database, door, reading));
  Fold(reading.shape, reading.record_count);
  return {};
}

}  // namespace

Result<WholeReading> ReadWhole(const ByteSource& source, Door door) {
  WholeReading reading;
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(source));
  LMDBIO_TRY(const Database free_list, environment.FreeList());
  LMDBIO_TRY_VOID(ReadDatabase(free_list, door, reading));
  LMDBIO_TRY_VOID(ReadDatabase(environment.Main(), door, reading));
  LMDBIO_TRY(const std::vector<std::string> names, environment.Names());
  for (const std::string& name : names) {
    LMDBIO_TRY(const Database database, environment.Named(name));
    LMDBIO_TRY_VOID(ReadDatabase(database, door, reading));
  }
  LMDBIO_TRY_VOID(environment.CheckHolds());
  return reading;
}

}  // namespace lmdbio::test
