// Goal: a walk that reads values along with leaf pages delivers the records of the file, whatever
// the file looks like, and reads each byte once where it applies.
// Method: databases that real liblmdb wrote in several ways. The oracle of the bytes is the file
// itself, that of the records liblmdb's cursor.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/walked_source.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;

std::string NumberedKey(uint64_t number) { return fmt::format("{:08}", number); }

// `count` records in the order of their keys, with a commit after each thousand.
void FillInOrder(TinyDb& db, uint64_t count, uint64_t value_bytes) {
  Random random(1);
  for (uint64_t i = 0; i < count; ++i) {
    db.Put(NumberedKey(i), random.BytesOf(value_bytes));
    if (i % 1000 == 999) db.Commit();
  }
  db.Commit();
}

// The same records, put in another order.
void FillAtRandom(TinyDb& db, uint64_t count, uint64_t value_bytes) {
  Random random(2);
  std::vector<uint64_t> numbers(count);
  for (uint64_t i = 0; i < count; ++i) numbers[i] = i;
  for (uint64_t i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[random.Below(i)]);
  for (uint64_t i = 0; i < count; ++i) {
    db.Put(NumberedKey(numbers[i]), random.BytesOf(value_bytes));
    if (i % 1000 == 999) db.Commit();
  }
  db.Commit();
}

// Puts values again, at random, so that they leave their leaf pages.
void Rewrite(TinyDb& db, uint64_t count, uint64_t value_bytes, uint64_t rewrites) {
  Random random(3);
  for (uint64_t i = 0; i < rewrites; ++i) {
    db.Put(NumberedKey(random.Below(count)), random.BytesOf(value_bytes));
    if (i % 100 == 99) db.Commit();
  }
  db.Commit();
}

// A database in a file of its own, as the library sees it.
class OpenedDb {
 public:
  explicit OpenedDb(const std::filesystem::path& data_file)
      : path_(data_file.string()),
        source_(Good(file::FileSource::Open(path_))),
        environment_(Good(file::Environment::Open(*source_))) {}

  file::Database database() const { return environment_.Main(); }

  std::vector<PageNo> Leaves() const {
    file::PageClaims claims(environment_.snapshot().page_count());
    return Good(file::ListLeaves(database(), claims));
  }
  std::optional<Extent> Range() const {
    return load::JointRange(database(), Leaves(), ~uint64_t{0});
  }
  std::unique_ptr<load::Locator> Locator() const {
    file::EngineOptions engine;
    engine.cache = file::CachePolicy::kDirect;
    return load::MakeScanLocator(database(), nullptr, nullptr,
                                 {.joint = load::JointWalk{path_, engine, ~uint64_t{0}, 0}});
  }

 private:
  std::string path_;
  std::unique_ptr<file::FileSource> source_;
  file::Environment environment_;
};

// Collects the locations of values.
class ValueExtents final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& run) override {
    all.insert(all.end(), run.values.begin(), run.values.end());
    return {};
  }
  std::vector<Extent> all;
};

LoaderOptions PastTheCache(uint64_t batch_size) {
  LoaderOptions options;
  options.strategy = load::Strategy::kScan;
  options.cache = file::CachePolicy::kDirect;
  options.joint_walk = load::JointWalkUse::kOn;
  options.global_batch_size = batch_size;
  return options;
}

// Delivers one epoch and compares it with liblmdb. Returns the counters of rank 0.
load::LoaderCounters CheckEpoch(int ranks, const std::filesystem::path& data_file,
                                LoaderOptions options, uint64_t record_count) {
  const uint64_t epoch = (record_count + options.global_batch_size - 1) / options.global_batch_size;
  if (options.max_batches == 0) options.max_batches = epoch;
  const Delivered delivered = Deliver({ranks, 64}, data_file, options);
  for (const auto& error : delivered.errors) {
    CHECK((error ? error->message() : "") == "");
  }
  CHECK(delivered.records == Expected(data_file, options));
  CHECK(delivered.twice_count == 0);
  return delivered.counters;
}

TEST_CASE("A joint walk is chosen for files that were written in order", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  SECTION("values behind their leaf pages") {
    FillInOrder(db, 4000, 3080);
    CHECK(OpenedDb(db.data_file()).Range().has_value());
  }
  SECTION("values in leaf pages") {
    FillInOrder(db, 60'000, 200);
    CHECK(OpenedDb(db.data_file()).Range().has_value());
  }
  SECTION("a small file") {
    FillInOrder(db, 500, 3080);
    CHECK_FALSE(OpenedDb(db.data_file()).Range().has_value());
  }
  SECTION("records that were put at random") {
    FillAtRandom(db, 20'000, 500);
    CHECK_FALSE(OpenedDb(db.data_file()).Range().has_value());
  }
  SECTION("another database in the file") {
    FillInOrder(db, 4000, 3080);
    db.Use("other");
    FillInOrder(db, 1000, 3080);
    CHECK_FALSE(OpenedDb(db.data_file()).Range().has_value());
  }
  SECTION("an empty database") {
    CHECK_FALSE(OpenedDb(db.Put("a", "").Delete("a").Commit().data_file()).Range());
  }
}

TEST_CASE("A joint walk hands over the bytes of the file", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 4000, 3080);
  const std::vector<std::byte> file = ReadWholeFile(db.data_file());
  const OpenedDb opened(db.data_file());
  const auto locator = opened.Locator();

  uint64_t copied_count = 0;
  for (uint64_t first = 0; first < 4000; first += 200) {
    ValueExtents values;
    REQUIRE(locator->Locate({first}, 200, values));
    for (const Extent& value : values.all) {
      std::vector<std::byte> bytes(value.length_bytes);
      if (!locator->CopyWalked(value, bytes)) continue;
      ++copied_count;
      REQUIRE(std::equal(bytes.begin(), bytes.end(),
                         file.begin() + static_cast<ptrdiff_t>(value.offset)));
    }
  }
  CHECK(copied_count > 3900);
  CHECK(locator->counters().reads.bytes <= file.size());
}

TEST_CASE("A joint walk that is not needed any more ends", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 26'000, 3080);  // larger than the pool
  const OpenedDb opened(db.data_file());
  for (int i = 0; i < 60; ++i) {
    const auto locator = opened.Locator();
    // At once, while the branch pages are read, or when the pool is full.
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 10));
  }
}

TEST_CASE("A joint walk delivers every record and reads each byte once", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  const bool is_small = GENERATE(false, true);
  const uint64_t count = is_small ? 60'000 : 4000;
  FillInOrder(db, count, is_small ? 200 : 3080);
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(db.data_file()));
  const int ranks = GENERATE(1, 3);
  const uint64_t batch_size = GENERATE(7, 256, 5000);

  const auto counters = CheckEpoch(ranks, db.data_file(), PastTheCache(batch_size), count);
  CHECK(static_cast<double>(counters.bytes_read) < 1.05 * file_bytes);
  CHECK(static_cast<double>(counters.bytes_read) > 0.9 * file_bytes);
  // A plain walk reads the blocks of each slot, whose edges are shorter.
  CHECK(counters.read_requests <= static_cast<uint64_t>(file_bytes / (1 << 20)) + 8);
}

TEST_CASE("A joint walk serves a stream of several epochs and one that ends early",
          "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 4000, 3080);
  LoaderOptions options = PastTheCache(64);
  options.max_batches = GENERATE(1, 5, 150);
  CheckEpoch(2, db.data_file(), options, 4000);
}

TEST_CASE("Files whose values left their leaf pages are delivered, too", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  SECTION("rewritten a thousand times") {
    FillInOrder(db, 4000, 3080);
    Rewrite(db, 4000, 3080, 1000);
  }
  SECTION("rewritten with other sizes") {
    FillInOrder(db, 4000, 3080);
    Rewrite(db, 4000, 9000, 1000);
  }
  SECTION("put at random") { FillAtRandom(db, 4000, 3080); }
  SECTION("two databases in turn") {
    Random random(4);
    for (uint64_t i = 0; i < 4000; ++i) {
      db.Use("").Put(NumberedKey(i), random.BytesOf(3080));
      db.Use("other").Put(NumberedKey(i), random.BytesOf(100));
      if (i % 500 == 499) db.Commit();
    }
    db.Commit();
  }
  CheckEpoch(2, db.data_file(), PastTheCache(300), LmdbRecords(db.data_file()).size());
}

TEST_CASE("A batch that is larger than the pool is delivered", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 26'000, 3080);  // 107 MB
  CheckEpoch(2, db.data_file(), PastTheCache(26'000), 26'000);
}

TEST_CASE("A file that is cut short during a joint walk is an error", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 4000, 3080);
  LoaderOptions options = PastTheCache(64);
  options.max_batches = 63;
  std::filesystem::resize_file(db.data_file(), std::filesystem::file_size(db.data_file()) / 2);
  const Delivered delivered = Deliver({2, 64}, db.data_file(), options);
  for (const auto& error : delivered.errors) CHECK(error.has_value());
}

TEST_CASE("A damaged page is found in a joint walk", "[joint_walk]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillInOrder(db, 4000, 3080);
  const std::vector<PageNo> leaves = OpenedDb(db.data_file()).Leaves();
  std::vector<std::byte> file = ReadWholeFile(db.data_file());
  const uint64_t page = leaves[leaves.size() / 2].value;
  std::fill_n(file.begin() + static_cast<ptrdiff_t>(page * 4096), 16, std::byte{0x5A});
  WriteWholeFile(db.data_file(), file);
  LoaderOptions options = PastTheCache(64);
  options.max_batches = 63;
  const Delivered delivered = Deliver({1, 64}, db.data_file(), options);
  REQUIRE(delivered.errors.front().has_value());
  CHECK(delivered.errors.front()->code() == ErrorCode::kCorruption);
  CHECK_THAT(delivered.errors.front()->message(), ContainsSubstring(fmt::format("page {}", page)));
}

}  // namespace
}  // namespace lmdbio::test
