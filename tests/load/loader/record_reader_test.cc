#include "lmdbio/load/loader/record_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/databases.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

bool Same(Bytes bytes, const std::string& text) {
  return bytes.size() == text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

void CheckRead(RecordReader& reader, const test::ServedDatabase& database,
               const std::vector<uint64_t>& numbers) {
  const auto records = reader.Read(numbers);
  if (!records) FAIL(records.error().message());
  REQUIRE(records->size() == numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const test::KeyValue& expected = database.records[numbers[i]];
    REQUIRE(Same((*records)[i].key, expected.first));
    REQUIRE(Same((*records)[i].value, expected.second));
  }
}

// Goal: any choice of records from any kind of database equals the records of liblmdb's cursor.
TEST_CASE("RecordReader gives the records that liblmdb finds", "[loader][records]") {
  test::ServedDatabases databases;
  for (const char* fixture : {"one-record", "boundaries", "random-order", "updated",
                              "dupsort-promoted", "dupfixed-main", "page-512-dupsort"}) {
    databases.AddFixture(fixture);
  }
  databases.AddFixture("named", "plain");
  for (const test::ServedDatabase& database : databases.all()) {
    INFO(database.name);
    for (const file::EngineKind engine : {file::EngineKind::kUring, file::EngineKind::kPread}) {
      RecordReaderOptions options;
      options.database_name = database.database_name;
      options.engine = engine;
      options.block_bytes = 8192;
      const auto opened = RecordReader::Open(database.data_file, options);
      REQUIRE(opened);
      RecordReader& reader = **opened;
      REQUIRE(reader.record_count() == database.records.size());
      std::vector<uint64_t> all(database.records.size());
      std::iota(all.begin(), all.end(), 0);
      CheckRead(reader, database, all);
      std::reverse(all.begin(), all.end());
      CheckRead(reader, database, all);
      CheckRead(reader, database, {});
      test::Random random(7);
      for (int round = 0; round < 50; ++round) {
        std::vector<uint64_t> numbers(random.Below(20) + 1);
        for (uint64_t& number : numbers) number = random.Below(all.size());
        numbers.push_back(numbers.front());  // one number occurs twice
        CheckRead(reader, database, numbers);
      }
    }
  }
}

TEST_CASE("RecordReader refuses what is not there, and goes on", "[loader][records]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  const auto reader = RecordReader::Open(db.data_file(), {});
  REQUIRE(reader);
  const uint64_t beyond = (*reader)->record_count();
  const auto none = (*reader)->Read(std::vector<uint64_t>{0, beyond});
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::kInvalidArgument);
  CHECK(none.error().message().find("record " + std::to_string(beyond) + " is out of range") !=
        std::string::npos);
  CHECK((*reader)->Read(std::vector<uint64_t>{0}));

  RecordReaderOptions options;
  options.block_bytes = 1000;
  CHECK(RecordReader::Open(db.data_file(), options).error().code() == ErrorCode::kInvalidArgument);
  options = {};
  options.queue_depth = 0;
  CHECK(RecordReader::Open(db.data_file(), options).error().code() == ErrorCode::kInvalidArgument);
  CHECK(RecordReader::Open(db.data_file().string() + ".none", {}).error().code() ==
        ErrorCode::kNotFound);
}

// Goal: a file that is cut off, or damaged in its records, gives an error and no wrong bytes.
TEST_CASE("RecordReader survives a damaged file", "[loader][records]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  const auto sound = test::ReadWholeFile(db.data_file());
  const auto whole = RecordReader::Open(db.data_file(), {});
  REQUIRE(whole);
  const uint64_t count = (*whole)->record_count();
  uint64_t failures = 0;
  for (uint64_t page = 2; page * 4096 < sound.size(); ++page) {
    auto damaged = sound;
    for (size_t i = 0; i < 16; ++i) damaged[page * 4096 + i] ^= std::byte{0x55};
    test::WriteWholeFile(db.data_file(), damaged);
    const auto reader = RecordReader::Open(db.data_file(), {});
    if (!reader) {
      ++failures;
      continue;
    }
    for (uint64_t number = 0; number < count; ++number) {
      const auto record = (*reader)->Read(std::span(&number, 1));
      if (record) continue;
      CHECK(record.error().code() == ErrorCode::kCorruption);
      ++failures;
    }
  }
  CHECK(failures >= count);  // at least the head of each record

  test::WriteWholeFile(db.data_file(), sound);
  const auto reader = RecordReader::Open(db.data_file(), {});
  REQUIRE(reader);
  std::filesystem::resize_file(db.data_file(), 3 * 4096);
  const uint64_t last = count - 1;
  const auto record = (*reader)->Read(std::span(&last, 1));
  REQUIRE_FALSE(record);
  CHECK(record.error().code() == ErrorCode::kStale);
}

}  // namespace
}  // namespace lmdbio::load
