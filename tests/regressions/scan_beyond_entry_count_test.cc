// Symptom: a scan delivered more records than entry_count(), and failed only after the last one. So
// a caller with room for entry_count() records had to check for itself. Cause: RecordScan compared
// the two numbers only at the end.

#include "lmdbio/file/layout/record_scan.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

TEST_CASE("RecordScan stops at the entry count", "[layout][damage]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("reverse-key"), dir.path());
  const MemorySource source(ReadWholeFile(fixture.data_file));
  const file::Database sound = OpenDatabase(source);
  file::DatabaseRecord record = sound.record();
  record.entry_count -= 5;

  file::RecordScan scan(file::Database(sound.pages(), "", record));
  uint64_t delivered = 0;
  Result<bool> found = scan.Next();
  for (; found && *found; found = scan.Next()) ++delivered;

  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code() == ErrorCode::kCorruption);
  CHECK(delivered == record.entry_count);
}

}  // namespace
}  // namespace lmdbio::test
