// Goal: records found by keys are those of liblmdb, in every key order, with and without
// duplicates, by one thread and by many.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <lmdb.h>

#include "lmdbio/load/records/record_reader.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/load/loader/databases.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using Keys = std::vector<std::string>;

std::vector<Bytes> BytesOf(const Keys& keys) {
  std::vector<Bytes> bytes;
  for (const std::string& key : keys) bytes.push_back(std::as_bytes(std::span(key)));
  return bytes;
}

std::string Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The first record and the number of values of each key, from liblmdb's records.
std::map<std::string, KeyNumber> NumbersOf(const test::ServedDatabase& database) {
  std::map<std::string, KeyNumber> numbers;
  for (uint64_t i = 0; i < database.records.size(); ++i) {
    KeyNumber& key = numbers[database.records[i].first];
    if (key.value_count++ == 0) key.first = i;
  }
  return numbers;
}

KeyNumber NumberOf(const std::map<std::string, KeyNumber>& numbers, const std::string& key) {
  const auto found = numbers.find(key);
  return found == numbers.end() ? KeyNumber{} : found->second;
}

bool IsInteger(const test::ServedDatabase& database) {
  return (test::LmdbFlags(database.data_file, database.database_name) & MDB_INTEGERKEY) != 0;
}

// Keys of the database in random order, some twice, and some that it does not have.
Keys SomeKeys(const test::ServedDatabase& database, test::Random& random, uint64_t count,
              bool is_integer) {
  Keys keys;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = database.records[random.Below(database.records.size())].first;
    const uint64_t change = random.Below(8);
    if (change == 0) {
      char& byte = key[random.Below(key.size())];
      byte = static_cast<char>(byte ^ static_cast<char>(1 + random.Below(255)));
    }
    if (change == 1 && !is_integer) key += 'x';
    if (change == 2 && !is_integer) key.pop_back();
    keys.push_back(key);
    if (change == 3) keys.push_back(key);
  }
  return keys;
}

// Whether `records` are those that liblmdb has for `keys`.
bool AreRecords(const RecordSet& records, const test::ServedDatabase& database,
                const std::map<std::string, KeyNumber>& numbers, const Keys& keys) {
  if (records.size() != keys.size()) return false;
  for (size_t i = 0; i < keys.size(); ++i) {
    const KeyNumber number = NumberOf(numbers, keys[i]);
    if (records[i].is_found() != (number.value_count > 0)) return false;
    if (!records[i].is_found()) continue;
    if (Text(records[i].key) != keys[i]) return false;
    if (Text(records[i].value) != database.records[number.first].second) return false;
  }
  return true;
}

void CheckKeys(const RecordReader& reader, const test::ServedDatabase& database,
               const std::map<std::string, KeyNumber>& numbers, const Keys& keys) {
  const std::vector<Bytes> bytes = BytesOf(keys);
  const auto found = reader.Find(bytes);
  if (!found) FAIL(found.error().message());
  const auto counts = reader.CountValues(bytes);
  REQUIRE(counts);
  for (size_t i = 0; i < keys.size(); ++i) {
    INFO(i);
    REQUIRE((*found)[i] == NumberOf(numbers, keys[i]));
    REQUIRE((*counts)[i] == (*found)[i].value_count);
  }
  const auto records = reader.Get(bytes);
  if (!records) FAIL(records.error().message());
  REQUIRE(AreRecords(*records, database, numbers, keys));
}

void CheckKeyList(const RecordReader& reader, const test::ServedDatabase& database, uint64_t first,
                  uint64_t count) {
  const auto list = reader.ReadKeys(first, count);
  if (!list) FAIL(list.error().message());
  REQUIRE(list->size() == count);
  for (uint64_t i = 0; i < count; ++i) {
    const bool is_same = Text((*list)[i]) == database.records[first + i].first;
    REQUIRE(is_same);
  }
}

void CheckDatabase(const test::ServedDatabase& database) {
  INFO(database.name);
  RecordReaderOptions options;
  options.database_name = database.database_name;
  options.engine = GENERATE(file::EngineKind::kUring, file::EngineKind::kPread);
  options.block_bytes = 8192;
  const auto opened = RecordReader::Open(database.data_file, options);
  if (!opened) FAIL(opened.error().message());
  const RecordReader& reader = **opened;
  const std::map<std::string, KeyNumber> numbers = NumbersOf(database);
  const bool is_integer = IsInteger(database);
  Keys all;
  for (const auto& [key, number] : numbers) all.push_back(key);
  CheckKeys(reader, database, numbers, all);
  std::reverse(all.begin(), all.end());
  CheckKeys(reader, database, numbers, all);
  CheckKeys(reader, database, numbers, {});
  if (!is_integer) CheckKeys(reader, database, numbers, {"", std::string(600, '\xff'), ""});
  test::Random random(5);
  for (int round = 0; round < 25; ++round) {
    CheckKeys(reader, database, numbers,
              SomeKeys(database, random, 1 + random.Below(30), is_integer));
  }
  CheckKeyList(reader, database, 0, database.records.size());
  CheckKeyList(reader, database, database.records.size(), 0);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = random.Below(database.records.size());
    CheckKeyList(reader, database, first, random.Below(database.records.size() - first) + 1);
  }
}

TEST_CASE("RecordReader finds the records of keys that liblmdb has", "[records][keys]") {
  const char* const fixture =
      GENERATE("one-record", "boundaries", "random-order", "updated", "key-sizes", "reverse-key",
               "dupsort-small", "dupsort-promoted", "dupsort-empty-values", "dupfixed-main",
               "reverse-dup", "page-512-plain", "page-512-dupsort", "page-16384-plain");
  test::ServedDatabases databases;
  databases.AddFixture(fixture);
  const bool has_provenance = GENERATE(true, false);
  const test::ServedDatabase& database = databases.all().front();
  if (!has_provenance) std::filesystem::remove(database.data_file.string() + ".prov");
  CheckDatabase(database);
}

TEST_CASE("RecordReader finds keys in named databases", "[records][keys]") {
  test::ServedDatabases databases;
  databases.AddFixture("named", "plain");
  databases.AddFixture("named", "reverse");
  databases.AddFixture("named", "dupsort");
  databases.AddFixture("named");  // names of databases are keys of the main one
  databases.AddFixture("integer-key", "keys-of-4");
  databases.AddFixture("integer-key", "keys-of-8");
  databases.AddFixture("dupfixed-promoted", "items-of-2");
  databases.AddFixture("integer-dup", "items-of-4");
  for (const test::ServedDatabase& database : databases.all()) CheckDatabase(database);
}

// mdb_get itself, because the other tests compare with a pass over all records.
TEST_CASE("RecordReader::Get agrees with mdb_get", "[records][keys]") {
  const char* const fixture = GENERATE("random-order", "reverse-key", "dupsort-promoted");
  test::ServedDatabases databases;
  databases.AddFixture(fixture);
  const test::ServedDatabase& database = databases.all().front();
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi main = 0;
  REQUIRE(mdb_env_create(&environment) == 0);
  REQUIRE(mdb_env_open(environment, database.data_file.c_str(),
                       MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR, 0) == 0);
  REQUIRE(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction) == 0);
  REQUIRE(mdb_dbi_open(transaction, nullptr, 0, &main) == 0);
  const auto reader = RecordReader::Open(database.data_file, {});
  REQUIRE(reader);
  test::Random random(9);
  for (const std::string& key : SomeKeys(database, random, 500, false)) {
    if (key.empty()) continue;  // MDB_BAD_VALSIZE
    MDB_val name{key.size(), const_cast<char*>(key.data())};
    MDB_val value{};
    const int status = mdb_get(transaction, main, &name, &value);
    REQUIRE((status == 0 || status == MDB_NOTFOUND));
    const auto records = (*reader)->Get(BytesOf({key}));
    REQUIRE(records);
    REQUIRE((*records)[0].is_found() == (status == 0));
    if (status != 0) continue;
    const std::string expected(static_cast<const char*>(value.mv_data), value.mv_size);
    const bool is_same = Text((*records)[0].value) == expected;
    REQUIRE(is_same);
  }
  mdb_txn_abort(transaction);
  mdb_env_close(environment);
}

TEST_CASE("RecordReader finds nothing in an empty database", "[records][keys]") {
  for (const char* name : {"fresh", "emptied"}) {
    const test::TempDir dir;
    const test::Fixture fixture = test::WriteFixture(test::FindFixture(name), dir.path());
    const auto reader = RecordReader::Open(fixture.data_file, {});
    REQUIRE(reader);
    const Keys keys = {"a", "", "b"};
    const auto found = (*reader)->Find(BytesOf(keys));
    REQUIRE(found);
    CHECK(*found == std::vector<KeyNumber>(3));
    const auto records = (*reader)->Get(BytesOf(keys));
    REQUIRE(records);
    for (size_t i = 0; i < 3; ++i) CHECK_FALSE((*records)[i].is_found());
    CHECK((*reader)->ReadKeys(0, 0)->size() == 0);
    CHECK((*reader)->ReadKeys(0, 1).error().code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("RecordReader::ReadKeys refuses a range beyond the end", "[records][keys]") {
  test::ServedDatabases databases;
  databases.AddFixture("boundaries");
  const auto reader = RecordReader::Open(databases.all().front().data_file, {});
  REQUIRE(reader);
  const uint64_t count = (*reader)->record_count();
  for (const auto& [first, length] : {std::pair<uint64_t, uint64_t>{0, count + 1},
                                      {count, 1},
                                      {count + 1, 0},
                                      {1, ~uint64_t{0}},
                                      {~uint64_t{0}, 2}}) {
    const auto keys = (*reader)->ReadKeys(first, length);
    REQUIRE_FALSE(keys);
    CHECK(keys.error().code() == ErrorCode::kInvalidArgument);
  }
}

// Goal: threads that share a reader find and get records together, also while the page walk goes
// on and while branch pages are kept.
TEST_CASE("Threads find keys with one RecordReader", "[records][keys]") {
  test::ServedDatabases databases;
  databases.AddFixture(GENERATE("random-order", "dupsort-promoted"));
  const test::ServedDatabase& database = databases.all().front();
  std::filesystem::remove(database.data_file.string() + ".prov");
  const std::map<std::string, KeyNumber> numbers = NumbersOf(database);
  const auto opened = RecordReader::Open(database.data_file, {});
  REQUIRE(opened);
  const RecordReader& reader = **opened;
  std::atomic<int> right_count = 0;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    threads.emplace_back([&, seed] {
      test::Random random(seed);
      for (int round = 0; round < 20; ++round) {
        const Keys keys = SomeKeys(database, random, 1 + random.Below(20), false);
        const std::vector<Bytes> bytes = BytesOf(keys);
        const auto records = reader.Get(bytes);
        const auto found = reader.Find(bytes);
        const auto list = reader.ReadKeys(seed, 3);
        bool is_right = records && found && list && AreRecords(*records, database, numbers, keys);
        for (size_t i = 0; is_right && i < keys.size(); ++i) {
          is_right = (*found)[i] == NumberOf(numbers, keys[i]);
        }
        if (is_right) ++right_count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right_count == 12 * 20);
}

// Goal: whatever page is damaged, a key gives its record or an error.
TEST_CASE("RecordReader finds keys in a damaged file", "[records][keys]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  const auto records = test::LmdbRecords(db.data_file());
  const auto sound = test::ReadWholeFile(db.data_file());
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
    for (const test::KeyValue& record : records) {
      const auto found = (*reader)->Get(BytesOf({record.first}));
      if (found) {
        REQUIRE((*found)[0].is_found());
        REQUIRE(Text((*found)[0].key) == record.first);
        // A page inside a value has no header, so bytes of the value may differ.
        REQUIRE((*found)[0].value.size() == record.second.size());
        continue;
      }
      REQUIRE(found.error().code() == ErrorCode::kCorruption);
      ++failures;
    }
  }
  CHECK(failures >= records.size());
}

TEST_CASE("RecordReader notices that the file was changed", "[records][keys]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillOverflow(db);
  const auto records = test::LmdbRecords(db.data_file());
  RecordReaderOptions options;
  options.snapshot = SnapshotMode::kOptimistic;
  const auto reader = RecordReader::Open(db.data_file(), options);
  REQUIRE(reader);
  REQUIRE((*reader)->Get(BytesOf({records[0].first})));
  for (int i = 0; i < 3; ++i) db.Put("zz", std::to_string(i)).Commit();
  for (const auto& error : {(*reader)->Get(BytesOf({records[1].first})).error().code(),
                            (*reader)->Find(BytesOf({records[1].first})).error().code(),
                            (*reader)->ReadKeys(0, 1).error().code()}) {
    CHECK(error == ErrorCode::kStale);
  }
}

}  // namespace
}  // namespace lmdbio::load
