// Goal: the contract of a cursor beyond reading in order, which conformance_test.cc covers.
#include "lmdbio/file/layout/cursor.h"

#include "lmdbio/file/source/file_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Cursor;
using file::CursorPosition;
using file::Database;

struct Opened {
  explicit Opened(std::string_view fixture_name) {
    fixture = WriteFixture(FindFixture(fixture_name), dir.path());
    source = Value(file::FileSource::Open(fixture.data_file));
  }
  TempDir dir;
  Fixture fixture;
  std::unique_ptr<file::FileSource> source;
};

TEST_CASE("Every seek in an empty database returns false without an error", "[layout][cursor]") {
  for (const char* name : {"fresh", "emptied"}) {
    const Opened opened(name);
    Cursor cursor(OpenDatabase(*opened.source));
    CHECK_FALSE(Value(cursor.First()));
    CHECK_FALSE(Value(cursor.Last()));
    CHECK_FALSE(Value(cursor.SeekKey(AsBytes("key"))));
    CHECK_FALSE(Value(cursor.SeekOrdinal({0})));
    CHECK_FALSE(cursor.standing());
  }
}

TEST_CASE("Moving a cursor without a position is an error", "[layout][cursor]") {
  const Opened opened("one-record");
  Cursor cursor(OpenDatabase(*opened.source));
  const Result<bool> next = cursor.Next();
  REQUIRE_FALSE(next.has_value());
  CHECK(next.error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("A cursor does not move past either end", "[layout][cursor]") {
  const Opened opened("one-record");
  Cursor cursor(OpenDatabase(*opened.source));
  REQUIRE(Value(cursor.First()));
  CHECK_FALSE(Value(cursor.Next()));
  CHECK(cursor.standing());
  CHECK_FALSE(Value(cursor.Prev()));
  CHECK(Text(cursor.key()) == "only");
}

TEST_CASE("SeekKey past the last key finds nothing", "[layout][cursor]") {
  const Opened opened("ordered");
  Cursor cursor(OpenDatabase(*opened.source));
  CHECK_FALSE(Value(cursor.SeekKey(AsBytes("\xFF\xFF"))));
  REQUIRE(Value(cursor.SeekKey(AsBytes(""))));
  const std::string first = Text(cursor.key());
  REQUIRE(Value(cursor.First()));
  CHECK(Text(cursor.key()) == first);
}

TEST_CASE("A position of another tree is refused", "[layout][cursor]") {
  const Opened opened("ordered");
  Cursor cursor(OpenDatabase(*opened.source));
  REQUIRE(Value(cursor.First()));
  const CursorPosition good = cursor.position();
  const auto refused = [&](auto change) {
    CursorPosition position = good;
    change(position);
    const Status sought = cursor.SeekPosition(position);
    return !sought && sought.error().code() == ErrorCode::kInvalidArgument && !cursor.standing();
  };
  CHECK(refused([](CursorPosition& position) { position.depth = 0; }));
  CHECK(refused([](CursorPosition& position) { position.depth = 33; }));
  CHECK(refused([](CursorPosition& position) { position.path[0].page += 1; }));
  CHECK(refused([](CursorPosition& position) { position.path[1].index = 1; }));
  CHECK(refused([](CursorPosition& position) { position.path[0].index = 60'000; }));
  CHECK(refused([](CursorPosition& position) { position.duplicate_depth = 1; }));
  Succeed(cursor.SeekPosition(good));
  CHECK(cursor.standing());
}

TEST_CASE("NextKey skips duplicates", "[layout][cursor]") {
  const Opened opened("dupsort-promoted");
  const Database database = OpenDatabase(*opened.source);
  Cursor every(database);
  Cursor keys(database);
  bool found = Value(every.First());
  bool found_key = Value(keys.First());
  while (found_key) {
    REQUIRE(found);
    const std::string key = Text(keys.key());
    REQUIRE(Text(every.key()) == key);
    while (found && Text(every.key()) == key) found = Value(every.Next());
    found_key = Value(keys.NextKey());
  }
  CHECK_FALSE(found);
}

Status ReadAll(const ByteSource& source) {
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(source));
  Cursor cursor(environment.Main());
  LMDBIO_TRY(bool found, cursor.First());
  while (found) {
    LMDBIO_TRY_VOID(cursor.Value());
    LMDBIO_TRY(found, cursor.Next());
  }
  return {};
}

TEST_CASE("A cursor returns the error of any failed read, and the next pass works",
          "[layout][cursor][fault]") {
  const Opened opened("named");
  const std::vector<std::byte> content = ReadWholeFile(opened.fixture.data_file);
  for (uint64_t fail_at = 0;; ++fail_at) {
    INFO("read " << fail_at << " fails");
    MemorySource source(content);
    source.FailNthRead(fail_at);
    const Status status = ReadAll(source);
    if (source.faults_delivered() == 0) {
      REQUIRE(status.has_value());
      REQUIRE(fail_at > 5);
      break;
    }
    // The meta pages are read until two readings agree, so the open may survive a failure there.
    if (!status) CHECK(status.error().code() == ErrorCode::kIo);
    if (fail_at > 12) REQUIRE_FALSE(status.has_value());
    source.FailNthRead(MemorySource::kNever);
    Succeed(ReadAll(source));
  }
}

}  // namespace
}  // namespace lmdbio::test
