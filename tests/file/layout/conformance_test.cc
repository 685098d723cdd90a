// Goal: the library reads the same records as LMDB from every file, through every interface: cursor
// forwards and backwards, page walk, record numbers, keys, positions. Method: liblmdb writes the
// catalogue of fixtures, and its cursor is the oracle. The oracle of the version 3 files is the
// stored output of LMDB 1.0's mdb_dump.

#include <algorithm>
#include <array>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/file/source/read_ahead_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Cursor;
using file::Database;
using file::Layout;
using file::LayoutBuilder;

std::vector<KeyValue> Scan(const Database& database) {
  std::vector<KeyValue> records;
  file::RecordScan scan(database);
  while (Value(scan.Next())) {
    records.emplace_back(Text(scan.cursor().key()), Text(Value(scan.cursor().Value())));
  }
  return records;
}

std::vector<KeyValue> ScanBackwards(const Database& database) {
  std::vector<KeyValue> records;
  Cursor cursor(database);
  for (bool found = Value(cursor.Last()); found; found = Value(cursor.Prev())) {
    records.emplace_back(Text(cursor.key()), Text(Value(cursor.Value())));
  }
  std::ranges::reverse(records);
  return records;
}

Layout WalkWhole(const Database& database) {
  LayoutBuilder builder;
  Value(file::WalkDatabase(database, builder));
  return builder.Finish();
}

// The layout of `worker_count` walks over shares of the leaves. Each walk gets its share and the
// number of its first record, and nothing else.
Layout WalkInShares(const Database& database, uint32_t worker_count) {
  file::PageClaims claims(database.pages().snapshot().page_count());
  const std::vector<PageNo> leaves = Value(file::ListLeaves(database, claims));
  LayoutBuilder builder;
  uint64_t first = 0;
  for (uint32_t worker = 0; worker < worker_count; ++worker) {
    const auto share = file::ShareOfLeaves(leaves, worker, worker_count);
    first += Value(file::WalkLeaves(database, share, RecordIndex{first}, claims, builder));
  }
  return builder.Finish();
}

std::string ReadExtent(const Database& database, Extent extent) {
  std::vector<std::byte> scratch(extent.length_bytes);
  return Text(Value(database.pages().source().Read(extent, scratch)));
}

// Every layout must name the bytes of every value.
void CheckLayout(const Database& database, const Layout& found,
                 const std::vector<KeyValue>& expected) {
  REQUIRE(found.record_count() == expected.size());
  Cursor cursor(database);
  bool standing = Value(cursor.First());
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("record " << i);
    const Extent value = found.Value({i});
    REQUIRE(standing);
    REQUIRE(value == Value(cursor.ValueExtent()));
    REQUIRE(ReadExtent(database, value) == expected[i].second);
    const file::KeyLocation place = found.Key({i});
    const file::CursorPosition position = cursor.position();
    REQUIRE(place.leaf.value == position.path[position.depth - 1].page);
    REQUIRE(place.node == position.path[position.depth - 1].index);
    standing = Value(cursor.Next());
  }
  CHECK_FALSE(standing);
}

// Some ordinals, spread over the database and dense at its ends.
std::vector<size_t> SomeOrdinals(size_t count) {
  std::vector<size_t> ordinals;
  for (size_t i = 0; i < count; i += 1 + count / 40) ordinals.push_back(i);
  for (size_t i = count > 3 ? count - 3 : 0; i < count; ++i) ordinals.push_back(i);
  return ordinals;
}

void CheckSeeks(const Database& database, const std::vector<KeyValue>& expected) {
  Cursor cursor(database);
  Cursor other(database);
  for (const size_t ordinal : SomeOrdinals(expected.size())) {
    INFO("ordinal " << ordinal);
    REQUIRE(Value(cursor.SeekOrdinal({ordinal})));
    REQUIRE(Text(cursor.key()) == expected[ordinal].first);
    REQUIRE(Text(Value(cursor.Value())) == expected[ordinal].second);
    // Another cursor accepts the position and continues from it with the next record.
    Succeed(other.SeekPosition(cursor.position()));
    REQUIRE(Text(Value(other.Value())) == expected[ordinal].second);
    REQUIRE(Value(other.Next()) == (ordinal + 1 < expected.size()));
    if (ordinal + 1 < expected.size()) {
      REQUIRE(Text(Value(other.Value())) == expected[ordinal + 1].second);
    }
    // SeekKey finds the first record with the key.
    REQUIRE(Value(other.SeekKey(AsBytes(expected[ordinal].first))));
    const auto first = std::ranges::find(expected, expected[ordinal].first, &KeyValue::first);
    REQUIRE(Text(other.key()) == first->first);
    REQUIRE(Text(Value(other.Value())) == first->second);
  }
  CHECK_FALSE(Value(cursor.SeekOrdinal({expected.size()})));
}

void CheckDatabase(const Database& database, const std::vector<KeyValue>& expected) {
  REQUIRE(database.entry_count() == expected.size());
  REQUIRE(Scan(database) == expected);
  REQUIRE(ScanBackwards(database) == expected);
  CheckLayout(database, WalkWhole(database), expected);
  for (const uint32_t workers : {2U, 3U, 7U}) {
    INFO("workers " << workers);
    CheckLayout(database, WalkInShares(database, workers), expected);
  }
  CheckSeeks(database, expected);
}

TEST_CASE("Every fixture reads as liblmdb reads it", "[layout][conformance]") {
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    if (spec.bulk == FixtureBulk::kHuge) continue;
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    INFO("fixture " << spec.name);
    const auto source = Value(file::FileSource::Open(fixture.data_file));
    const file::Environment environment = Value(file::Environment::Open(*source));
    REQUIRE(environment.snapshot().page_format.page_size_bytes() == fixture.page_size_bytes);
    CheckDatabase(environment.Main(), LmdbRecords(fixture.data_file));
    const std::vector<std::string> names = Value(environment.Names());
    REQUIRE(std::set<std::string>(names.begin(), names.end()) == fixture.database_names);
    for (const std::string& name : names) {
      INFO("database " << name);
      CheckDatabase(Value(environment.Named(name)), LmdbRecords(fixture.data_file, name));
    }
    Succeed(environment.CheckHolds());
  }
}

TEST_CASE("Every source gives the same records", "[layout][conformance]") {
  for (const char* name : {"ordered", "boundaries", "named"}) {
    const TempDir dir;
    const Fixture fixture = WriteFixture(FindFixture(name), dir.path());
    INFO("fixture " << name);
    const std::vector<KeyValue> expected = LmdbRecords(fixture.data_file);
    const auto read_ahead = Value(file::ReadAheadSource::Open(fixture.data_file));
    CHECK((Scan(OpenDatabase(*read_ahead)) == expected));
    CHECK((ScanBackwards(OpenDatabase(*read_ahead)) == expected));
    const auto map = Value(file::MapSource::Open(fixture.data_file));
    CHECK((Scan(OpenDatabase(*map)) == expected));
    map->Advise(AccessPattern::kSequential);
    CHECK((Scan(OpenDatabase(*map)) == expected));
  }
}

TEST_CASE("Extents of records beyond 4 GiB are correct", "[layout][conformance]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("beyond-4-gib"), dir.path());
  const auto source = Value(file::FileSource::Open(fixture.data_file));
  const Database database = OpenDatabase(*source);
  const Layout found = WalkWhole(database);
  Cursor cursor(database);
  bool standing = Value(cursor.First());
  uint64_t record = 0;
  uint64_t farthest = 0;
  LmdbScan(fixture.data_file, "", [&](Bytes key, Bytes value) {
    REQUIRE(standing);
    REQUIRE(Text(cursor.key()) == Text(key));
    const Extent extent = found.Value({record++});
    REQUIRE(extent.length_bytes == value.size());
    REQUIRE(extent == Value(cursor.ValueExtent()));
    farthest = std::max(farthest, extent.offset);
    if (value.size() <= 65536) REQUIRE(Text(Value(cursor.Value())) == Text(value));
    standing = Value(cursor.Next());
  });
  CHECK_FALSE(standing);
  CHECK(record == database.entry_count());
  CHECK(farthest > uint64_t{4} << 30);
}

TEST_CASE("Every fixture of version 3 reads as LMDB 1.0 dumps it", "[layout][conformance]") {
  for (const std::string& name : V3FixtureNames()) {
    INFO("fixture " << name);
    const MemorySource source(V3FixtureBytes(name), name);
    const file::Environment environment = Value(file::Environment::Open(source));
    const std::vector<DumpedDatabase> main = ParseDump(V3FixtureText(name, "dump"));
    REQUIRE(main.size() == 1);
    CheckDatabase(environment.Main(), main[0].records);
    for (const DumpedDatabase& expected : ParseDump(V3FixtureText(name, "dump-a"))) {
      INFO("database " << expected.name);
      CheckDatabase(Value(environment.Named(expected.name)), expected.records);
    }
  }
}

}  // namespace
}  // namespace lmdbio::test
