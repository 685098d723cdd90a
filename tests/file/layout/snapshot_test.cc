// Goal: a snapshot is the newest committed state, and CheckSnapshotHolds detects when it no longer
// holds. Method: liblmdb commits between reads of the library.
#include "lmdbio/file/layout/snapshot.h"

#include <filesystem>

#include "lmdbio/file/layout/record_scan.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/read_ahead_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Environment;
using file::Snapshot;

TEST_CASE("TakeSnapshot takes the newer meta page", "[layout][snapshot]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (uint64_t commit = 1; commit <= 5; ++commit) {
    db.Put("key" + std::to_string(commit), "value").Commit();
    const auto source = Value(file::FileSource::Open(db.data_file()));
    const Snapshot snapshot = Value(file::TakeSnapshot(*source));
    CHECK(snapshot.meta.transaction_id == commit);
    CHECK(snapshot.meta.main.entry_count == commit);
    CHECK(snapshot.meta.page_no.value == commit % 2);
  }
}

TEST_CASE("A snapshot holds for one more commit, and not for two", "[layout][snapshot]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("key", "value").Commit();
  const auto source = Value(file::FileSource::Open(db.data_file()));
  const Environment environment = Value(Environment::Open(*source));
  CHECK(environment.CheckHolds().has_value());
  db.Put("key", "second").Commit();
  CHECK(environment.CheckHolds().has_value());
  db.Put("key", "third").Commit();
  const Status holds = environment.CheckHolds();
  REQUIRE_FALSE(holds.has_value());
  CHECK(holds.error().code() == ErrorCode::kStale);
  CHECK(holds.error().message() ==
        db.data_file().string() +
            ": the database changed while it was being read (transaction 1 to 3)");
}

TEST_CASE("The pages of a snapshot stay readable while it holds", "[layout][snapshot]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 500; ++i) db.Put("key" + std::to_string(1000 + i), std::string(300, 'a'));
  db.Commit();
  const auto source = Value(file::FileSource::Open(db.data_file()));
  const Environment environment = Value(Environment::Open(*source));
  for (int i = 0; i < 500; ++i) db.Put("key" + std::to_string(1000 + i), std::string(300, 'b'));
  db.Commit();
  file::RecordScan scan(environment.Main());
  while (Value(scan.Next())) {
    REQUIRE(Text(Value(scan.cursor().Value())) == std::string(300, 'a'));
  }
  Succeed(environment.CheckHolds());
}

TEST_CASE("Reading ahead does not hide later commits", "[layout][snapshot]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("key", "value").Commit();
  const auto source = Value(file::ReadAheadSource::Open(db.data_file()));
  const Environment environment = Value(Environment::Open(*source));
  file::Cursor cursor(environment.Main());
  REQUIRE(Value(cursor.First()));
  for (int commit = 0; commit < 5; ++commit) db.Put("key", std::to_string(commit)).Commit();
  CHECK_FALSE(environment.CheckHolds().has_value());
}

TEST_CASE("CheckSnapshotHolds detects a file that shrinks", "[layout][snapshot]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("key", std::string(50'000, 'x')).Commit();
  const auto source = Value(file::FileSource::Open(db.data_file()));
  const Environment environment = Value(Environment::Open(*source));
  std::filesystem::resize_file(db.data_file(), 4096 * 3);
  file::Cursor cursor(environment.Main());
  const Result<bool> found = cursor.First();
  const Result<Bytes> value = found ? cursor.Value() : Result<Bytes>(Bytes{});
  CHECK((!found || !value));
  const Status holds = environment.CheckHolds();
  REQUIRE_FALSE(holds.has_value());
  CHECK(holds.error().code() == ErrorCode::kStale);
}

}  // namespace
}  // namespace lmdbio::test
