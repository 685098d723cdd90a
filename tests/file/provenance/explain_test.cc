// Goal: ExplainLayout recognises an ordered load from the file alone, and no other file.
#include "lmdbio/file/provenance/explain.h"

#include <lmdb.h>

#include <random>

#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::Database;
using file::ExplainedLoad;
using file::Layout;
using file::LoadHint;
using file::PutMode;

// The layout and the sizes of a database, as a walk gives them.
struct ExplainedWalk final : file::RecordRunSink {
  explicit ExplainedWalk(const Database& database) {
    Value(file::WalkDatabase(database, *this));
    layout = builder.Finish();
  }
  Status Add(const file::RecordRun& run) override {
    for (const Extent& value : run.values) {
      value_bytes.push_back(static_cast<uint32_t>(value.length_bytes));
    }
    key_bytes.insert(key_bytes.end(), run.key_bytes.begin(), run.key_bytes.end());
    return builder.Add(run);
  }
  file::LayoutBuilder builder;
  Layout layout;
  std::vector<uint32_t> key_bytes, value_bytes;
};

struct Found {
  bool is_ordered_load = false;
  uint64_t interval = 0;
  PutMode put_mode = PutMode::kDefault;
  bool replays_exactly = false;
};

struct Rebuilt final : file::RecordRunSink {
  Status Add(const file::RecordRun& run) override { return builder.Add(run); }
  file::LayoutBuilder builder;
};

Found Explain(const std::string& data_file, const LoadHint& hint = {}) {
  const auto source = Value(file::FileSource::Open(data_file));
  const Database database = OpenDatabase(*source);
  const ExplainedWalk walked(database);
  const std::optional<ExplainedLoad> explained =
      file::ExplainLayout(database, walked.layout, walked.key_bytes, walked.value_bytes, hint);
  Found found;
  if (!explained) return found;
  found.is_ordered_load = true;
  found.interval = explained->load.commit_interval_records;
  found.put_mode = explained->load.put_mode;
  file::LayoutBuilder rebuilt;
  Value(file::Replay(database.pages().page_format(), explained->load, rebuilt));
  const Layout replayed = rebuilt.Finish();
  found.replays_exactly = replayed.record_count() == walked.layout.record_count();
  for (uint64_t i = 0; found.replays_exactly && i < replayed.record_count(); ++i) {
    found.replays_exactly = replayed.Value({i}) == walked.layout.Value({i}) &&
                            replayed.Key({i}) == walked.layout.Key({i});
  }
  return found;
}

std::string Key(uint64_t i) {
  const std::string digits = std::to_string(i);
  return std::string(8 - digits.size(), '0') + digits;
}

// Loads `count` records of the sizes that `size_of` gives, in order.
template <typename SizeOf>
std::string Load(const TempDir& dir, uint64_t count, uint64_t interval, SizeOf size_of,
                 unsigned put_flags = 0, uint32_t page_size_bytes = 4096) {
  TinyDb db(dir.path(), {.page_size_bytes = page_size_bytes});
  for (uint64_t i = 0; i < count; ++i) {
    db.Put(Key(i), std::string(size_of(i), 'x'), put_flags);
    if ((i + 1) % interval == 0) db.Commit();
  }
  db.Commit();
  return db.data_file();
}

TEST_CASE("The commit interval of an ordered load is found", "[provenance][explain]") {
  struct Case {
    uint64_t count, interval, value_bytes;
  };
  const Case cases[] = {{5000, 1000, 3080}, {5000, 1000, 100}, {4999, 1000, 784},
                        {3000, 7, 3080},    {3000, 1, 20},     {2000, 2000, 3080},
                        {3500, 1700, 3080}, {3500, 1700, 100}, {9000, 2500, 1},
                        {300, 40, 200'000}, {1000, 333, 2022}, {1000, 333, 2023}};
  const uint32_t page_bytes = GENERATE(512U, 4096U, 16384U, 32768U);
  for (const Case& load : cases) {
    INFO(load.count << " records of " << load.value_bytes << " B, interval " << load.interval);
    CAPTURE(page_bytes);
    const TempDir dir;
    const Found found = Explain(Load(
        dir, load.count, load.interval, [&](uint64_t) { return load.value_bytes; }, 0, page_bytes));
    REQUIRE(found.is_ordered_load);
    CHECK(found.replays_exactly);
    CHECK(found.put_mode == PutMode::kDefault);
    // Several intervals can explain a load of few transactions. Only a load of more than ten must
    // give the true interval.
    if (load.count > 10 * load.interval) CHECK(found.interval == load.interval);
  }
}

TEST_CASE("A load of varying sizes, and an appended one, are found", "[provenance][explain]") {
  std::mt19937_64 random(11);
  const TempDir dir;
  const Found varying =
      Explain(Load(dir, 3000, 250, [&](uint64_t) { return 1 + random() % 9000; }));
  CHECK(varying.is_ordered_load);
  CHECK(varying.interval == 250);
  CHECK(varying.replays_exactly);

  const TempDir other;
  const Found appended = Explain(Load(
      other, 3000, 250, [](uint64_t) { return 300; }, MDB_APPEND));
  CHECK(appended.is_ordered_load);
  CHECK(appended.put_mode == PutMode::kAppend);
  CHECK(appended.replays_exactly);
}

TEST_CASE("A load is found in spite of a wrong hint", "[provenance][explain]") {
  const TempDir dir;
  const std::string file = Load(dir, 3000, 250, [](uint64_t) { return 3080; });
  for (const uint64_t wrong : {uint64_t{1}, uint64_t{249}, uint64_t{251}, ~uint64_t{0}}) {
    const Found found = Explain(file, LoadHint{wrong, PutMode::kAppend});
    CHECK(found.is_ordered_load);
    CHECK(found.interval == 250);
  }
}

TEST_CASE("A modified database is not explained as an ordered load", "[provenance][explain]") {
  const TempDir dir;
  const std::string file = Load(dir, 3000, 250, [](uint64_t) { return 3080; });
  SECTION("one value was updated") {
    TinyDb(dir.path()).Put(Key(1234), std::string(3080, 'y')).Commit();
  }
  SECTION("one record was deleted") { TinyDb(dir.path()).Delete(Key(77)).Commit(); }
  SECTION("one record was inserted") { TinyDb(dir.path()).Put(Key(77) + "a", "new").Commit(); }
  CHECK_FALSE(Explain(file).is_ordered_load);
}

TEST_CASE("A load in random order is not explained", "[provenance][explain]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (uint64_t i = 0; i < 2000; ++i) {
    db.Put(Key(i * 7919 % 2000), std::string(3080, 'x'));
    if ((i + 1) % 100 == 0) db.Commit();
  }
  db.Commit();
  CHECK_FALSE(Explain(db.data_file()).is_ordered_load);
}

TEST_CASE("A load with an open reader is not explained", "[provenance][explain]") {
  const TempDir dir;
  TinyDb db(dir.path());
  MDB_env* environment = nullptr;
  MDB_txn* reader = nullptr;
  for (uint64_t i = 0; i < 5000; ++i) {
    db.Put(Key(i), std::string(3080, 'x'));
    if ((i + 1) % 100 == 0) db.Commit();
    if (i == 999) {
      // The reader keeps the pages of its snapshot from being recycled.
      REQUIRE(mdb_env_create(&environment) == 0);
      REQUIRE(mdb_env_open(environment, dir.path().c_str(), MDB_RDONLY | MDB_NOTLS, 0644) == 0);
      REQUIRE(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &reader) == 0);
    }
  }
  db.Commit();
  mdb_txn_abort(reader);
  mdb_env_close(environment);
  CHECK_FALSE(Explain(db.data_file()).is_ordered_load);
}

}  // namespace
}  // namespace lmdbio::test
