// Goal: the library reads every file that liblmdb writes, with the same records, after any sequence
// of operations. Method: random workloads; after every few commits all results of the library are
// compared with liblmdb's own cursor. A failure names its seed; LMDBIO_TEST_SEED=N runs that seed
// alone.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "lmdbio/file/source/file_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/file/layout/random_workload.h"
#include "tests/fixtures/lmdb_error.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Cursor;
using file::CursorPosition;
using file::Database;
using file::Layout;

constexpr MDB_dbi kFreeList = 0;

// liblmdb's view of one committed state.
class CommittedState {
 public:
  explicit CommittedState(MDB_env* environment) {
    ThrowUnlessOk(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction_), "mdb_txn_begin");
  }
  ~CommittedState() { mdb_txn_abort(transaction_); }
  CommittedState(const CommittedState&) = delete;
  CommittedState& operator=(const CommittedState&) = delete;

  // False if no transaction has created it yet.
  bool Open(const std::string& name, MDB_dbi& database) const {
    const int code =
        mdb_dbi_open(transaction_, name.empty() ? nullptr : name.c_str(), 0, &database);
    if (code != MDB_NOTFOUND) ThrowUnlessOk(code, "mdb_dbi_open " + name);
    return code == MDB_SUCCESS;
  }

  MDB_stat Stat(MDB_dbi database) const {
    MDB_stat stat{};
    ThrowUnlessOk(mdb_stat(transaction_, database, &stat), "mdb_stat");
    return stat;
  }

  std::vector<KeyValue> Records(MDB_dbi database) const {
    MDB_cursor* cursor = nullptr;
    ThrowUnlessOk(mdb_cursor_open(transaction_, database, &cursor), "mdb_cursor_open");
    std::vector<KeyValue> records;
    MDB_val key{};
    MDB_val value{};
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == MDB_SUCCESS) {
      records.emplace_back(Copy(key), Copy(value));
    }
    mdb_cursor_close(cursor);
    return records;
  }

  // The first record with a key of at least `wanted`; nothing if there is none.
  std::vector<KeyValue> FirstFrom(MDB_dbi database, const std::string& wanted) const {
    MDB_cursor* cursor = nullptr;
    ThrowUnlessOk(mdb_cursor_open(transaction_, database, &cursor), "mdb_cursor_open");
    MDB_val key = AsMdbVal(wanted);
    MDB_val value{};
    const int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    std::vector<KeyValue> found;
    if (code == MDB_SUCCESS) found.emplace_back(Copy(key), Copy(value));
    mdb_cursor_close(cursor);
    return found;
  }

 private:
  static std::string Copy(const MDB_val& val) {
    return {static_cast<const char*>(val.mv_data), val.mv_size};
  }

  MDB_txn* transaction_ = nullptr;
};

struct Totals {
  uint64_t file_count = 0;
  uint64_t record_count = 0;
};

KeyValue RecordAt(Cursor& cursor) { return {Text(cursor.key()), Text(Value(cursor.Value()))}; }

// Forwards; also notes every position.
void CheckScan(const Database& database, const std::vector<KeyValue>& expected,
               std::vector<CursorPosition>& positions) {
  file::RecordScan scan(database);
  while (Value(scan.Next())) {
    REQUIRE(positions.size() < expected.size());
    REQUIRE((RecordAt(scan.cursor()) == expected[positions.size()]));
    positions.push_back(scan.cursor().position());
  }
  REQUIRE(positions.size() == expected.size());
}

void CheckBackwards(const Database& database, const std::vector<KeyValue>& expected) {
  Cursor cursor(database);
  size_t left = expected.size();
  for (bool found = Value(cursor.Last()); found; found = Value(cursor.Prev())) {
    REQUIRE(left > 0);
    REQUIRE((RecordAt(cursor) == expected[--left]));
  }
  REQUIRE(left == 0);
}

// Checks that the layout gives the extent of every value and the location of every key, and that
// the tree has as many leaves as its record states.
void CheckWalk(const Database& database, const std::vector<KeyValue>& expected,
               const std::vector<CursorPosition>& positions) {
  file::LayoutBuilder builder;
  const std::vector<PageNo> leaves = Value(file::WalkDatabase(database, builder));
  CHECK(leaves.size() == database.record().leaf_pages);
  const Layout found = builder.Finish();
  REQUIRE(found.record_count() == expected.size());
  std::vector<std::byte> scratch;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Extent extent = found.Value({i});
    scratch.resize(std::max<size_t>(scratch.size(), extent.length_bytes));
    REQUIRE((Text(Value(database.pages().source().Read(extent, scratch))) == expected[i].second));
    const file::KeyLocation place = found.Key({i});
    const file::PathStep& step = positions[i].path[positions[i].depth - 1];
    REQUIRE(place.leaf.value == step.page);
    REQUIRE(place.node == step.index);
  }
}

void CheckOrdinals(const Database& database, const std::vector<KeyValue>& expected,
                   const std::vector<CursorPosition>& positions, Random& random) {
  Cursor cursor(database);
  for (int i = 0; i < 8 && !expected.empty(); ++i) {
    const uint64_t record = random.Below(expected.size());
    INFO("record " << record);
    REQUIRE(Value(cursor.SeekOrdinal({record})));
    REQUIRE((RecordAt(cursor) == expected[record]));
    Succeed(cursor.SeekPosition(positions[record]));
    REQUIRE((RecordAt(cursor) == expected[record]));
  }
  CHECK_FALSE(Value(cursor.SeekOrdinal({expected.size()})));
}

void CheckKey(const Database& database, const CommittedState& oracle, MDB_dbi handle,
              const std::string& key) {
  Cursor cursor(database);
  const std::vector<KeyValue> expected = oracle.FirstFrom(handle, key);
  REQUIRE(Value(cursor.SeekKey(AsBytes(key))) == !expected.empty());
  if (!expected.empty()) REQUIRE((RecordAt(cursor) == expected[0]));
}

uint64_t CheckDatabase(const Database& database, const CommittedState& oracle, MDB_dbi handle,
                       Random& random) {
  const MDB_stat stat = oracle.Stat(handle);
  const std::vector<KeyValue> expected = oracle.Records(handle);
  REQUIRE(stat.ms_entries == expected.size());  // otherwise liblmdb itself miscounted
  CHECK(database.entry_count() == stat.ms_entries);
  CHECK(database.record().depth == stat.ms_depth);
  CHECK(database.record().branch_pages == stat.ms_branch_pages);
  CHECK(database.record().overflow_pages == stat.ms_overflow_pages);
  std::vector<CursorPosition> positions;
  CheckScan(database, expected, positions);
  CheckBackwards(database, expected);
  CheckWalk(database, expected, positions);
  CheckOrdinals(database, expected, positions, random);
  return expected.size();
}

void CheckFile(RandomWorkload& workload, Random& random, Totals& totals) {
  const CommittedState oracle(workload.environment());
  const auto source = Value(file::FileSource::Open(workload.data_file()));
  const file::Environment environment = Value(file::Environment::Open(*source));
  std::vector<std::string> names;
  for (WorkloadDatabase database : workload.databases()) {
    INFO("database '" << database.name << "' flags " << database.flags);
    MDB_dbi handle = 0;
    if (!oracle.Open(database.name, handle)) continue;
    if (!database.name.empty()) names.push_back(database.name);
    const Database found = OpenDatabase(*source, database.name);
    totals.record_count += CheckDatabase(found, oracle, handle, random);
    for (int i = 0; i < 8; ++i) {
      CheckKey(found, oracle, handle, workload.UsedKey(database));
      CheckKey(found, oracle, handle, workload.FreshKey(database));
    }
  }
  CHECK(Value(environment.Names()) == names);
  INFO("free list");
  CheckDatabase(Value(environment.FreeList()), oracle, kFreeList, random);
  Succeed(environment.CheckHolds());
  ++totals.file_count;
}

void RunWorkload(uint64_t seed, Totals& totals) {
  INFO("LMDBIO_TEST_SEED=" << seed);
  const TempDir dir;
  RandomWorkload workload(dir.path(), seed);
  Random random(seed);
  for (uint64_t transaction = 0; transaction < 8; ++transaction) {
    workload.RunTransaction();
    if (transaction % 3 == 1) CheckFile(workload, random, totals);
  }
}

TEST_CASE("The library reads files of random workloads as liblmdb does", "[layout][workload]") {
  constexpr uint64_t kWorkloadCount = 120;
  Totals totals;
  const char* only = std::getenv("LMDBIO_TEST_SEED");
  const uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const uint64_t count = only == nullptr ? kWorkloadCount : 1;
  for (uint64_t seed = first; seed < first + count; ++seed) RunWorkload(seed, totals);
  // Guards against workloads that silently become empty.
  CHECK(totals.file_count >= 2 * count);
  CHECK(totals.record_count >= 100 * count);
}

}  // namespace
}  // namespace lmdbio::test
