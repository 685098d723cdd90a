// Compares Replay with its oracle: liblmdb performs the same load, and the test reads that file
// page by page. Every run and every counter must agree.
#include "lmdbio/file/provenance/replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

// Suppresses a leak report. liblmdb 0.9 leaks the list of pages of a transaction that is too large
// for memory and is written early, and a test below causes this.
extern "C" const char* __lsan_default_suppressions() { return "leak:mdb_midl_alloc\n"; }

namespace lmdbio::file {

namespace {

using Sizes = std::vector<uint32_t>;

constexpr uint64_t kOneTransaction = ~uint64_t{0};

struct ReplayedLoad {
  uint32_t page_size_bytes = 4096;
  Sizes key_bytes;
  Sizes value_bytes;
  uint64_t commit_interval_records = kOneTransaction;
  PutMode put_mode = PutMode::kDefault;
};

// Replay takes equal sizes as a constant; both forms of a column are under test.
SizeColumn AsColumn(const Sizes& sizes) {
  const bool is_constant =
      std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
  return is_constant && !sizes.empty() ? SizeColumn::Constant(sizes[0]) : SizeColumn::Each(sizes);
}

OrderedLoad AsOrderedLoad(const ReplayedLoad& load) {
  return {.record_count = load.key_bytes.size(),
          .commit_interval_records = load.commit_interval_records,
          .key_bytes = AsColumn(load.key_bytes),
          .value_bytes = AsColumn(load.value_bytes),
          .put_mode = load.put_mode};
}

struct WrittenRun {
  uint64_t first_record = 0;
  uint64_t leaf = 0;
  std::vector<Extent> values;
  Sizes key_bytes;
  friend bool operator==(const WrittenRun&, const WrittenRun&) = default;
};

struct CollectingSink : RecordRunSink {
  std::vector<WrittenRun> runs;
  Status Add(const RecordRun& run) override {
    if (run.home != run.leaf || run.first_node != 0 || run.kind != RunKind::kNodes) {
      return Fail(ErrorCode::kInternal, "a run that is not a whole leaf");
    }
    runs.push_back({run.first_record.value,
                    run.leaf.value,
                    {run.values.begin(), run.values.end()},
                    {run.key_bytes.begin(), run.key_bytes.end()}});
    return {};
  }
};

// Keys of the wanted sizes in ascending order: a big-endian counter of four bytes, then zeros. For
// a key shorter than four bytes, the counter jumps to the next value that ends in enough zero
// bytes.
class AscendingKeys {
 public:
  std::string Next(uint32_t key_bytes) {
    const uint64_t step = key_bytes >= 4 ? 1 : uint64_t{1} << (8 * (4 - key_bytes));
    counter_ = (counter_ / step + 1) * step;
    if (counter_ >> 32 != 0) throw std::out_of_range("too many short keys");
    std::string key(key_bytes, '\0');
    for (uint32_t i = 0; i < std::min(key_bytes, 4U); ++i) {
      key[i] = static_cast<char>(counter_ >> (24 - 8 * i));
    }
    return key;
  }

 private:
  uint64_t counter_ = 0;
};

// The data file that liblmdb 0.9 writes for a load, read without the library under test.
class LoadedFile {
 public:
  explicit LoadedFile(const ReplayedLoad& load);

  // The leaf pages in key order, by following the branch pages from the root.
  std::vector<WrittenRun> ReadRuns();

  const MDB_stat& stat() const { return stat_; }
  uint64_t root() const { return At<uint64_t>(meta_ + 128); }
  uint64_t last_page() const { return At<uint64_t>(meta_ + 136); }
  uint64_t transaction_id() const { return At<uint64_t>(meta_ + 144); }
  uint32_t branch_children_max() const { return branch_children_max_; }  // once ReadRuns is done

 private:
  void ReadPage(uint64_t page, std::vector<WrittenRun>& runs);

  template <typename T>
  T At(uint64_t offset) const {
    if (offset + sizeof(T) > bytes_.size()) throw std::out_of_range("read past the file's end");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::vector<std::byte> bytes_;
  MDB_stat stat_{};
  uint64_t meta_ = 0;  // offset of the newest meta page
  uint64_t record_count_ = 0;
  uint32_t branch_children_max_ = 0;
};

LoadedFile::LoadedFile(const ReplayedLoad& load) {
  const test::TempDir dir;
  test::TinyDb db(dir.path(), {.page_size_bytes = load.page_size_bytes});
  const unsigned flags = load.put_mode == PutMode::kAppend ? MDB_APPEND : 0;
  std::string value;
  AscendingKeys keys;
  for (size_t record = 0; record < load.key_bytes.size(); ++record) {
    if (record % load.commit_interval_records == 0) db.Commit();
    value.resize(load.value_bytes[record], 'v');
    db.Put(keys.Next(load.key_bytes[record]), value, flags);
  }
  db.Commit();
  bytes_ = test::ReadWholeFile(db.data_file());
  stat_ = test::LmdbStat(db.data_file());
  const uint64_t first_transaction_id = transaction_id();
  meta_ = load.page_size_bytes;
  if (first_transaction_id > transaction_id()) meta_ = 0;
}

std::vector<WrittenRun> LoadedFile::ReadRuns() {
  std::vector<WrittenRun> runs;
  if (stat_.ms_depth > 0) ReadPage(root(), runs);
  return runs;
}

void LoadedFile::ReadPage(uint64_t page, std::vector<WrittenRun>& runs) {
  constexpr uint32_t kHeaderBytes = 16;
  const uint64_t start = page * stat_.ms_psize;
  const bool is_branch = (At<uint16_t>(start + 10) & 0x01) != 0;
  const uint32_t node_count = (At<uint16_t>(start + 12) - kHeaderBytes) / 2;
  if (is_branch) {
    branch_children_max_ = std::max(branch_children_max_, node_count);
  } else {
    runs.push_back({record_count_, page, {}, {}});
    record_count_ += node_count;
  }
  for (uint32_t i = 0; i < node_count; ++i) {
    const uint64_t node = start + At<uint16_t>(start + kHeaderBytes + 2 * i);
    const auto low_bits = At<uint32_t>(node);
    const auto flags = At<uint16_t>(node + 4);
    const auto key_bytes = At<uint16_t>(node + 6);
    if (is_branch) {
      ReadPage(low_bits | uint64_t{flags} << 32, runs);
      continue;
    }
    runs.back().key_bytes.push_back(key_bytes);
    const uint64_t data = node + 8 + key_bytes;
    if ((flags & 0x01) != 0) {
      const uint64_t overflow_run = At<uint64_t>(data);
      runs.back().values.push_back({overflow_run * stat_.ms_psize + kHeaderBytes, low_bits});
    } else {
      runs.back().values.push_back({data, low_bits});
    }
  }
}

// The first difference of two lists of runs, or "".
std::string FirstDifference(const std::vector<WrittenRun>& actual,
                            const std::vector<WrittenRun>& expected) {
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    if (actual[i] == expected[i]) continue;
    return fmt::format("run {}: record {} on page {} with {} values; in the file {}, {}, {}", i,
                       actual[i].first_record, actual[i].leaf, actual[i].values.size(),
                       expected[i].first_record, expected[i].leaf, expected[i].values.size());
  }
  if (actual.size() == expected.size()) return "";
  return fmt::format("{} runs, {} in the file", actual.size(), expected.size());
}

// Replays a load, lets liblmdb perform it, and compares all runs and counters. Returns the depth of
// the tree.
uint32_t CheckAgainstLmdb(const ReplayedLoad& load) {
  CAPTURE(load.key_bytes.size(), load.page_size_bytes, load.commit_interval_records, load.put_mode);
  CollectingSink sink;
  const auto totals =
      Replay(PageFormat(DataVersion::k1, load.page_size_bytes), AsOrderedLoad(load), sink);
  REQUIRE(totals.has_value());

  LoadedFile file(load);
  REQUIRE(file.stat().ms_psize == load.page_size_bytes);
  REQUIRE(file.stat().ms_entries == load.key_bytes.size());
  const std::vector<WrittenRun> expected = file.ReadRuns();
  size_t leaf_records_max = 0;
  for (const WrittenRun& run : expected)
    leaf_records_max = std::max(leaf_records_max, run.values.size());
  CHECK(FirstDifference(sink.runs, expected) == "");
  CHECK(totals->root.value == file.root());
  CHECK(totals->last_page.value == file.last_page());
  CHECK(totals->transaction_count == file.transaction_id());
  CHECK(totals->depth == file.stat().ms_depth);
  CHECK(totals->branch_pages == file.stat().ms_branch_pages);
  CHECK(totals->leaf_pages == file.stat().ms_leaf_pages);
  CHECK(totals->overflow_pages == file.stat().ms_overflow_pages);
  CHECK(totals->leaf_records_max == leaf_records_max);
  CHECK(totals->branch_children_max == file.branch_children_max());
  return totals->depth;
}

Sizes Uniform(size_t count, uint32_t smallest, uint32_t largest) {
  test::Random random(count);
  Sizes sizes(count);
  for (uint32_t& size : sizes) size = static_cast<uint32_t>(random.Between(smallest, largest));
  return sizes;
}

// Standard libraries give different numbers here. That does not matter, because liblmdb performs
// the load with the same numbers.
Sizes LogNormal(size_t count, double median, double sigma) {
  std::mt19937_64 random(count);
  std::lognormal_distribution<double> distribution(std::log(median), sigma);
  Sizes sizes(count);
  for (uint32_t& size : sizes) size = static_cast<uint32_t>(distribution(random));
  return sizes;
}

// Several commit intervals with both put modes for one load.
void CheckTransactionsAgainstLmdb(ReplayedLoad load) {
  for (const uint64_t interval :
       {uint64_t{1}, uint64_t{2}, uint64_t{7}, uint64_t{100}, uint64_t{1000}, kOneTransaction}) {
    for (const PutMode put_mode : {PutMode::kDefault, PutMode::kAppend}) {
      load.commit_interval_records = interval;
      load.put_mode = put_mode;
      CheckAgainstLmdb(load);
    }
  }
}

}  // namespace

// Goal: values around every boundary: empty, several per leaf, the largest in a leaf and one byte
// more, the largest in one overflow page and one byte more, long runs.
TEST_CASE("Replay places records of one size as liblmdb does", "[provenance]") {
  const uint32_t value_bytes =
      GENERATE(0U, 1U, 100U, 784U, 2022U, 2023U, 3080U, 4080U, 4081U, 20000U, 196700U);
  CAPTURE(value_bytes);
  const size_t count = std::clamp<size_t>(6'000'000 / (value_bytes + 1), 60, 2500);
  CheckTransactionsAgainstLmdb(
      {.key_bytes = Sizes(count, 8), .value_bytes = Sizes(count, value_bytes)});
}

TEST_CASE("Replay places records of varying sizes as liblmdb does", "[provenance]") {
  constexpr size_t kCount = 1500;
  const Sizes value_bytes = GENERATE(Uniform(kCount, 100, 1900), Uniform(kCount, 0, 60),
                                     Uniform(kCount, 1950, 2050), LogNormal(kCount, 9000, 0.6));
  const Sizes key_bytes = GENERATE(Uniform(kCount, 34, 38), Uniform(kCount, 1, 511));
  CheckTransactionsAgainstLmdb({.key_bytes = key_bytes, .value_bytes = value_bytes});
}

TEST_CASE("Replay handles the smallest loads", "[provenance]") {
  const size_t count = GENERATE(0U, 1U, 2U, 3U, 4U, 5U);
  const uint32_t value_bytes = GENERATE(10U, 1990U, 3000U, 9000U);
  CheckTransactionsAgainstLmdb(
      {.key_bytes = Sizes(count, 30), .value_bytes = Sizes(count, value_bytes)});
}

// Goal: branch pages split too, up to high trees: small pages, long keys.
TEST_CASE("Replay follows liblmdb on every page size and to high trees", "[provenance]") {
  const uint32_t page_size_bytes = GENERATE(512U, 1024U, 2048U, 8192U, 16384U, 32768U);
  constexpr size_t kCount = 3000;
  ReplayedLoad load{.page_size_bytes = page_size_bytes,
                    .key_bytes = Uniform(kCount, 30, std::min(511U, page_size_bytes * 3 / 8 - 8)),
                    .value_bytes = Uniform(kCount, 0, page_size_bytes)};
  for (const uint64_t interval : {uint64_t{3}, uint64_t{500}, kOneTransaction}) {
    for (const PutMode put_mode : {PutMode::kDefault, PutMode::kAppend}) {
      load.commit_interval_records = interval;
      load.put_mode = put_mode;
      const uint32_t depth = CheckAgainstLmdb(load);
      if (page_size_bytes == 512) CHECK(depth >= 4);
    }
  }
}

// Goal: the layout of a transaction of more than 131071 pages, which liblmdb writes in several
// steps, follows the same rules.
TEST_CASE("Replay places one huge transaction as liblmdb does", "[provenance]") {
  constexpr size_t kCount = 140'000;
  CheckAgainstLmdb(
      {.page_size_bytes = 512, .key_bytes = Sizes(kCount, 16), .value_bytes = Sizes(kCount, 400)});
}

// Goal: the example of docs/replay.md.
TEST_CASE("Replay agrees with the worked example", "[provenance]") {
  CollectingSink sink;
  const auto totals = Replay(PageFormat(DataVersion::k1, 4096),
                             {.record_count = 9,
                              .commit_interval_records = 2,
                              .key_bytes = SizeColumn::Constant(8),
                              .value_bytes = SizeColumn::Constant(3000)},
                             sink);
  REQUIRE(totals.has_value());
  REQUIRE(sink.runs.size() == 1);
  std::vector<uint64_t> value_pages;
  for (const Extent value : sink.runs[0].values) value_pages.push_back(value.offset / 4096);
  CHECK(value_pages == std::vector<uint64_t>{3, 4, 6, 7, 10, 11, 13, 14, 8});
  CHECK(sink.runs[0].leaf == 5);
  CHECK(totals->root == PageNo{5});
  CHECK(totals->last_page == PageNo{16});
}

// Goal: Replay refuses an impossible load before it calls the sink.
TEST_CASE("Replay refuses impossible loads", "[provenance]") {
  const Sizes three_sizes{8, 8, 8};
  const Sizes with_empty_key{8, 8, 8, 0};
  OrderedLoad load{.record_count = 4,
                   .commit_interval_records = 1,
                   .key_bytes = SizeColumn::Constant(8),
                   .value_bytes = SizeColumn::Constant(100)};
  SECTION("commit interval 0") { load.commit_interval_records = 0; }
  SECTION("empty keys") { load.key_bytes = SizeColumn::Constant(0); }
  SECTION("one empty key") { load.key_bytes = SizeColumn::Each(with_empty_key); }
  SECTION("keys longer than LMDB takes") { load.key_bytes = SizeColumn::Constant(1983); }
  SECTION("too few key sizes") { load.key_bytes = SizeColumn::Each(three_sizes); }
  SECTION("too few value sizes") { load.value_bytes = SizeColumn::Each(three_sizes); }
  SECTION("no value sizes") { load.value_bytes = SizeColumn::Each({}); }

  CollectingSink sink;
  const auto totals = Replay(PageFormat(DataVersion::k1, 4096), load, sink);

  REQUIRE_FALSE(totals.has_value());
  CHECK(totals.error().code() == ErrorCode::kInvalidArgument);
  CHECK(sink.runs.empty());
}

TEST_CASE("Replay returns the sink's error", "[provenance]") {
  struct FailingSink : RecordRunSink {
    int runs_until_failure = 3;
    Status Add(const RecordRun&) override {
      if (--runs_until_failure > 0) return {};
      return Fail(ErrorCode::kResourceExhausted, "no room for another run");
    }
  };
  FailingSink sink;
  const auto totals = Replay(PageFormat(DataVersion::k1, 4096),
                             {.record_count = 10'000,
                              .commit_interval_records = 100,
                              .key_bytes = SizeColumn::Constant(8),
                              .value_bytes = SizeColumn::Constant(100)},
                             sink);

  REQUIRE_FALSE(totals.has_value());
  CHECK(totals.error().code() == ErrorCode::kResourceExhausted);
  CHECK(totals.error().message() == "no room for another run");
  CHECK(sink.runs_until_failure == 0);
}

}  // namespace lmdbio::file
