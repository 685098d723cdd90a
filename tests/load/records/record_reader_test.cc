#include "lmdbio/load/records/record_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/databases.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/wide.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

bool Same(Bytes bytes, const std::string& text) {
  return bytes.size() == text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// Whether `records` are those that liblmdb has found for `numbers`.
bool AreRecords(const RecordSet& records, const test::ServedDatabase& database,
                const std::vector<uint64_t>& numbers) {
  if (records.size() != numbers.size()) return false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const test::KeyValue& expected = database.records[numbers[i]];
    if (!Same(records[i].key, expected.first)) return false;
    if (!Same(records[i].value, expected.second)) return false;
  }
  return true;
}

void CheckRead(const RecordReader& reader, const test::ServedDatabase& database,
               const std::vector<uint64_t>& numbers) {
  const auto records = reader.Read(numbers);
  if (!records) FAIL(records.error().message());
  REQUIRE(AreRecords(*records, database, numbers));
}

// 1 to 20 numbers.
std::vector<uint64_t> AnyNumbers(test::Random& random, uint64_t record_count) {
  std::vector<uint64_t> numbers(random.Below(20) + 1);
  for (uint64_t& number : numbers) number = random.Below(record_count);
  return numbers;
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
        std::vector<uint64_t> numbers = AnyNumbers(random, all.size());
        numbers.push_back(numbers.front());  // one number occurs twice
        CheckRead(reader, database, numbers);
      }
    }
  }
}

// Reads random records in 16 threads at the same time. Each thread keeps its last two sets, and
// looks at them after later reads.
void ReadInThreads(const test::ServedDatabase& database, const RecordReaderOptions& options,
                   int rounds) {
  const auto opened = RecordReader::Open(database.data_file, options);
  REQUIRE(opened);
  const RecordReader& reader = **opened;
  std::mutex mutex;
  std::vector<std::string> wrong;
  const auto work = [&](uint64_t seed) {
    struct Kept {
      std::vector<uint64_t> numbers;
      RecordSet records;
    };
    std::vector<Kept> kept;
    test::Random random(seed);
    for (int round = 0; round < rounds; ++round) {
      std::vector<uint64_t> numbers = AnyNumbers(random, database.records.size());
      Result<RecordSet> records = reader.Read(numbers);
      if (kept.size() == 2) kept.erase(kept.begin());
      if (records) kept.push_back({std::move(numbers), std::move(*records)});
      bool is_right = static_cast<bool>(records);
      for (const Kept& one : kept) is_right &= AreRecords(one.records, database, one.numbers);
      if (is_right) continue;
      const std::lock_guard lock(mutex);
      wrong.push_back(records ? "another record than was asked for" : records.error().message());
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 16; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>());
}

// Goal: threads that share a reader get the records of liblmdb's cursor, also while the page walk
// goes on.
TEST_CASE("Threads read with one RecordReader at the same time", "[loader][records]") {
  test::ServedDatabases databases;
  for (const char* fixture : {"boundaries", "random-order", "dupsort-promoted"}) {
    databases.AddFixture(fixture);
  }
  for (const test::ServedDatabase& database : databases.all()) {
    INFO(database.name);
    RecordReaderOptions options;
    options.engine = GENERATE(file::EngineKind::kUring, file::EngineKind::kPread);
    options.queue_depth = 4;
    options.block_bytes = 8192;
    options.snapshot = GENERATE(SnapshotMode::kImmutable, SnapshotMode::kOptimistic);
    ReadInThreads(database, options, test::IsWide() ? 40 : 15);
  }
}

// Hidden, because it takes minutes: 1.6 million random reads.
TEST_CASE("Threads read with one RecordReader for minutes", "[.][long]") {
  test::ServedDatabases databases;
  databases.AddFixture("random-order");
  ReadInThreads(databases.all().front(), {}, 100'000);
}

// Goal: threads share the few fetches that can be opened; a thread that holds all gets an error.
TEST_CASE("Threads read with few descriptors", "[loader][records]") {
  test::ServedDatabases databases;
  databases.AddFixture("random-order");
  const test::ServedDatabase& database = databases.all().front();
  RecordReaderOptions options;
  options.engine = file::EngineKind::kPread;
  const auto opened = RecordReader::Open(database.data_file, options);
  REQUIRE(opened);
  const RecordReader& reader = **opened;
  CheckRead(reader, database, {0});
  rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit few = limit;
  few.rlim_cur = 0;  // no more than those that are open
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::atomic<int> right_count = 0;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      test::Random random(seed);
      for (int round = 0; round < 50; ++round) {
        const std::vector<uint64_t> numbers = AnyNumbers(random, database.records.size());
        const Result<RecordSet> records = reader.Read(numbers);
        if (records && AreRecords(*records, database, numbers)) ++right_count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Result<RecordSet> held = reader.Read(std::vector<uint64_t>{1});
  const Result<RecordSet> refused = reader.Read(std::vector<uint64_t>{2});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(right_count == 8 * 50);
  REQUIRE(held);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
  CHECK(AreRecords(*held, database, {1}));
  CheckRead(reader, database, {2});
}

TEST_CASE("Sets of records do not end each other", "[loader][records]") {
  test::ServedDatabases databases;
  databases.AddFixture("random-order");
  const test::ServedDatabase& database = databases.all().front();
  auto reader = RecordReader::Open(database.data_file, {});
  REQUIRE(reader);
  // More than the reader keeps.
  std::vector<RecordSet> sets;
  for (uint64_t i = 0; i < 40; ++i) {
    auto records = (*reader)->Read(std::vector<uint64_t>{i, i + 1});
    REQUIRE(records);
    sets.push_back(std::move(*records));
  }
  sets[3] = std::move(sets[7]);
  sets.erase(sets.begin() + 7);
  reader->reset();  // the sets outlive it
  for (uint64_t i = 0; i < sets.size(); ++i) {
    const uint64_t first = i == 3 ? 7 : i < 7 ? i : i + 1;
    CHECK(AreRecords(sets[i], database, {first, first + 1}));
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
