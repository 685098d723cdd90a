// Goal: a search finds each key where liblmdb finds it, in every key order, and no other key.
#include "lmdbio/file/keys/key_search.h"

#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/file/source/file_source.h"
#include "tests/file/keys/found_keys.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Database;
using file::KeptBranches;
using file::KeyOrder;

// Keys near those of the database that are not among them.
std::vector<std::string> AbsentKeys(const FoundKeys& present, KeyOrder order) {
  std::set<std::string> absent;
  Random random(3);
  for (const auto& [key, place] : present) {
    std::string bent = key;
    if (!bent.empty()) bent[random.Below(bent.size())] ^= static_cast<char>(1 + random.Below(255));
    absent.insert(bent);
    if (order == KeyOrder::kInteger) continue;  // all keys have one size
    absent.insert(key + '\0');
    absent.insert(key.substr(0, key.size() / 2));
    absent.insert(key.substr(std::min<size_t>(1, key.size())));
  }
  if (order != KeyOrder::kInteger) {
    absent.insert("");
    absent.insert(std::string(600, '\xff'));
    absent.insert(std::string(100'000, '\0'));
  }
  for (const auto& [key, place] : present) absent.erase(key);
  return {absent.begin(), absent.end()};
}

void CheckDatabase(const Database& database, const FoundKeys& expected) {
  const std::vector<std::string> absent = AbsentKeys(expected, database.key_order());
  std::vector<std::string> all = KeysOf(expected);
  all.insert(all.end(), absent.begin(), absent.end());
  KeptBranches kept;
  REQUIRE(Value(FindKeys(database, kept, all)) == expected);
  REQUIRE(Value(FindKeys(database, kept, all)) == expected);  // by kept branch pages
  REQUIRE(Value(FindKeys(database, kept, absent)).empty());
  KeptBranches none(0);
  Random random(11);
  for (int round = 0; round < 30; ++round) {
    std::set<std::string> some;
    for (uint64_t i = random.Below(40); i-- > 0;) some.insert(all[random.Below(all.size())]);
    FoundKeys wanted;
    for (const std::string& key : some) {
      if (const auto found = expected.find(key); found != expected.end()) wanted.insert(*found);
    }
    const std::vector<std::string> keys(some.begin(), some.end());
    REQUIRE(Value(FindKeys(database, round % 2 == 0 ? kept : none, keys)) == wanted);
  }
}

TEST_CASE("KeySearch finds the keys of liblmdb in every kind of database", "[keys]") {
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    if (spec.bulk == FixtureBulk::kHuge) continue;
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    const auto source = Value(file::FileSource::Open(fixture.data_file));
    std::set<std::string> names = fixture.database_names;
    names.insert("");
    for (const std::string& name : names) {
      INFO(spec.name << " " << name);
      const Database database = OpenDatabase(*source, name);
      FoundKeys expected;
      if (!database.record().empty()) expected = ScanKeys(database);
      // The cursor, which conformance_test.cc compares with liblmdb, names pages; liblmdb does not.
      std::set<std::string> keys;
      for (const KeyValue& record : LmdbRecords(fixture.data_file, name)) keys.insert(record.first);
      const std::vector<std::string> found = KeysOf(expected);
      REQUIRE(std::set<std::string>(found.begin(), found.end()) == keys);
      CheckDatabase(database, expected);
    }
  }
}

TEST_CASE("KeySearch finds the keys of files of version 3", "[keys]") {
  for (const std::string& name : V3FixtureNames()) {
    INFO(name);
    const MemorySource source(V3FixtureBytes(name));
    const file::Environment environment = Value(file::Environment::Open(source));
    std::vector<Database> databases = {environment.Main()};
    for (const std::string& one : Value(environment.Names())) {
      databases.push_back(Value(environment.Named(one)));
    }
    for (const Database& database : databases) {
      if (!database.record().empty()) CheckDatabase(database, ScanKeys(database));
    }
  }
}

// Goal: the pages of a level are read together, each once, and branch pages once for all searches.
TEST_CASE("KeySearch reads each page once", "[keys]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("ordered"), dir.path());
  const MemorySource source(ReadWholeFile(fixture.data_file));
  const Database database = OpenDatabase(source);
  REQUIRE(database.record().depth >= 3);
  const std::vector<std::string> keys = KeysOf(ScanKeys(database));
  const uint64_t tree_bytes =
      (database.record().branch_pages + database.record().leaf_pages) * fixture.page_size_bytes;
  KeptBranches kept;
  const uint64_t before = source.counters().bytes;
  REQUIRE(Value(FindKeys(database, kept, keys)).size() == keys.size());
  CHECK(source.counters().bytes - before == tree_bytes);
  const uint64_t between = source.counters().bytes;
  REQUIRE(Value(FindKeys(database, kept, keys)).size() == keys.size());
  CHECK(source.counters().bytes - between ==
        database.record().leaf_pages * fixture.page_size_bytes);
  const uint64_t last = source.counters().bytes;
  REQUIRE(Value(FindKeys(database, kept, {keys[keys.size() / 2]})).size() == 1);
  CHECK(source.counters().bytes - last == fixture.page_size_bytes);
}

TEST_CASE("KeySearch refuses integer keys of another size", "[keys]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("integer-key"), dir.path());
  const auto source = Value(file::FileSource::Open(fixture.data_file));
  for (const size_t size : {4U, 8U}) {
    const Database database = OpenDatabase(*source, fmt::format("keys-of-{}", size));
    KeptBranches kept;
    for (const size_t other : {0U, 1U, 4U, 5U, 8U, 600U}) {
      if (other == size) continue;
      const Result<FoundKeys> found = FindKeys(database, kept, {std::string(other, '\1')});
      REQUIRE_FALSE(found);
      CHECK(found.error().code() == ErrorCode::kInvalidArgument);
      CHECK_THAT(found.error().message(),
                 ContainsSubstring(fmt::format("a key of {} bytes", other)) &&
                     ContainsSubstring(fmt::format("integers of {} bytes", size)));
    }
    CHECK(Value(FindKeys(database, kept, {std::string(size, '\x7e')})).empty());
  }
}

int CompareBackwards(const MDB_val* a, const MDB_val* b) {
  const size_t common = std::min(a->mv_size, b->mv_size);
  const int order = -std::memcmp(a->mv_data, b->mv_data, common);
  return order != 0 ? order : static_cast<int>(b->mv_size) - static_cast<int>(a->mv_size);
}

// A database whose writer has sorted `keys` by CompareBackwards.
void WriteBackwards(const std::filesystem::path& folder, std::vector<std::string> keys) {
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi database = 0;
  REQUIRE(mdb_env_create(&environment) == 0);
  REQUIRE(mdb_env_set_mapsize(environment, 16 << 20) == 0);
  REQUIRE(mdb_env_open(environment, folder.c_str(), MDB_NOSYNC, 0644) == 0);
  REQUIRE(mdb_txn_begin(environment, nullptr, 0, &transaction) == 0);
  REQUIRE(mdb_dbi_open(transaction, nullptr, 0, &database) == 0);
  REQUIRE(mdb_set_compare(transaction, database, &CompareBackwards) == 0);
  for (std::string& key : keys) {
    MDB_val name{key.size(), key.data()};
    MDB_val value{key.size(), key.data()};
    REQUIRE(mdb_put(transaction, database, &name, &value, 0) == 0);
  }
  REQUIRE(mdb_txn_commit(transaction) == 0);
  mdb_env_close(environment);
}

// Goal: a comparison function that the file does not record is an error, and no key is absent by
// mistake: by the keys of branch pages, and in a tree of one page by those of the leaf page.
TEST_CASE("KeySearch detects an order that the file does not record", "[keys]") {
  for (const int count : {2, 20, 3000}) {
    INFO(count << " keys");
    const TempDir dir;
    std::vector<std::string> keys;
    for (int i = 0; i < count; ++i) keys.push_back(fmt::format("key {:05}", i * 7));
    WriteBackwards(dir.path(), keys);
    const auto source = Value(file::FileSource::Open(dir.path() / "data.mdb"));
    const Database opened = OpenDatabase(*source);
    REQUIRE((opened.record().depth == 1) == (count < 3000));
    for (const std::string& key : keys) {
      KeptBranches kept;
      const Result<FoundKeys> found = FindKeys(opened, kept, {key});
      if (found && found->size() == 1 && count == 3000) continue;
      REQUIRE_FALSE(found);
      REQUIRE(found.error().code() == ErrorCode::kCorruption);
      REQUIRE_THAT(found.error().message(), ContainsSubstring("comparison function of its own"));
    }
  }
}

// Goal: threads share kept branch pages, also while they are filled.
TEST_CASE("Threads search with one KeptBranches", "[keys]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("random-order"), dir.path());
  const auto source = Value(file::FileSource::Open(fixture.data_file));
  const Database database = OpenDatabase(*source);
  const FoundKeys expected = ScanKeys(database);
  const std::vector<std::string> keys = KeysOf(expected);
  KeptBranches kept;
  std::atomic<int> right_count = 0;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      Random random(seed);
      for (int round = 0; round < 30; ++round) {
        std::set<std::string> some;
        for (int i = 0; i < 20; ++i) some.insert(keys[random.Below(keys.size())]);
        const auto found = FindKeys(database, kept, {some.begin(), some.end()});
        bool is_right = found && found->size() == some.size();
        for (const std::string& key : some)
          is_right = is_right && found->at(key) == expected.at(key);
        if (is_right) ++right_count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right_count == 8 * 30);
}

TEST_CASE("KeySearch returns the error of any failed read", "[keys][fault]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("ordered"), dir.path());
  const std::vector<std::byte> content = ReadWholeFile(fixture.data_file);
  for (uint64_t fail_at = 0;; ++fail_at) {
    INFO("read " << fail_at << " fails");
    MemorySource source(content);
    const Database database = OpenDatabase(source);
    source.FailNthRead(source.counters().request_count + fail_at);
    KeptBranches kept;
    const Result<FoundKeys> found = FindKeys(database, kept, {"00000007", "00000999"});
    if (source.faults_delivered() == 0) {
      REQUIRE(fail_at == uint64_t{database.record().depth} + 1);  // two leaf pages
      break;
    }
    REQUIRE_FALSE(found);
    CHECK(found.error().code() == ErrorCode::kIo);
    source.FailNthRead(MemorySource::kNever);
    CHECK(Value(FindKeys(database, kept, {"00000007"})).size() == 1);
  }
}

}  // namespace
}  // namespace lmdbio::test
