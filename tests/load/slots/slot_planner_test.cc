// Goal: a slot of scattered records grows as far as that saves reads, and no further.
// Method: plans for imaginary databases, with the limits that a loader computes for them. The
// expected numbers are counts of records; the test measures no time.
#include "lmdbio/load/slots/slot_planner.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/order/keyed_permutation.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kRingBytes = 256 << 20;
constexpr uint64_t kFirstFillBytes = 8 << 20;  // of a slot, on the only host
// The test stops a planner that plans more records than this for one slot.
constexpr uint64_t kLocatedMax = 2 * kScatteredRecordsMax;

struct RecordShape {
  uint64_t count = 0;
  uint64_t per_leaf = 1;     // records of a leaf page
  uint64_t value_pages = 0;  // of a value's overflow run; 0: the value is on the leaf page

  uint64_t leaf_count() const { return (count + per_leaf - 1) / per_leaf; }
  // Behind each overflow run there is a page that no record needs.
  uint64_t run_pages() const { return value_pages > 0 ? value_pages + 1 : 0; }
  uint64_t file_pages() const { return 2 + leaf_count() + count * run_pages(); }
};

// Overflow runs lie in random order, as in a database that was filled in random order.
class MadeUpPlaces final : public Locator {
 public:
  explicit MadeUpPlaces(const RecordShape& records)
      : records_(records), place_of_(records.count, 1) {}

  void BeginSlot() { located_count_ = 0; }

  Result<uint64_t> RecordCount() override { return records_.count; }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    located_count_ += count;
    if (located_count_ > kLocatedMax) {
      return Fail(ErrorCode::kResourceExhausted, "one slot has asked for too many records");
    }
    const uint64_t end = first.value + count;
    for (uint64_t i = first.value; i < end;) {
      const uint64_t leaf = i / records_.per_leaf;
      const uint64_t run_end = std::min(end, (leaf + 1) * records_.per_leaf);
      values_.clear();
      for (uint64_t k = i; k < run_end; ++k) values_.push_back(ValueOf(k));
      file::RecordRun run;
      run.first_record = {i};
      run.leaf = run.home = PageNo{2 + leaf};
      run.first_node = static_cast<uint32_t>(i % records_.per_leaf);
      run.values = values_;
      LMDBIO_TRY_VOID(sink.Add(run));
      i = run_end;
    }
    return {};
  }

 private:
  Extent ValueOf(uint64_t i) const {
    const uint64_t leaf = i / records_.per_leaf;
    if (records_.value_pages == 0) return {(2 + leaf) * kPageBytes + 100, 16};
    const uint64_t page = 2 + records_.leaf_count() + place_of_(i) * records_.run_pages();
    return {page * kPageBytes + 16, records_.value_pages * kPageBytes - 16};
  }

  RecordShape records_;
  KeyedPermutation place_of_;
  std::vector<Extent> values_;
  uint64_t located_count_ = 0;
};

// The number of records in the plans of a host's first slots.
// ranks  of the job; the host has rank 0 alone
std::vector<uint64_t> RecordsOfSlots(const RecordShape& records, LoaderOptions options, int ranks,
                                     size_t slot_count) {
  OpenDecision facts;
  facts.record_count = records.count;
  facts.page_bytes_total =
      (records.leaf_count() + records.count * records.value_pages) * kPageBytes;
  ScheduleOptions schedule_options;
  schedule_options.walk = {records.count, options.order, options.shuffle, options.seed, 1};
  schedule_options.batch_size = options.global_batch_size;
  const Schedule schedule(schedule_options);
  options.strategy = Strategy::kScan;
  const SlotLimits limits = LimitsFor(facts, options, schedule, 1, 1, kRingBytes);
  ReadPlanOptions plan_options;
  plan_options.page_format = file::PageFormat(file::DataVersion::k1, kPageBytes);
  plan_options.file_size_bytes = records.file_pages() * kPageBytes;
  MadeUpPlaces places(records);
  SlotPlanner planner(schedule, 0, {ranks, {0}, Share::kBlock, ReuseAmong::kRank}, places, limits);
  std::vector<uint64_t> counts;
  PlannedSlot slot(plan_options);
  while (counts.size() < slot_count) {
    places.BeginSlot();
    REQUIRE(test::Good(planner.Next(slot)));
    REQUIRE(slot.is_scattered);
    counts.push_back(slot.plan.values().size());
  }
  return counts;
}

TEST_CASE("A slot does not read a small scattered database again and again", "[loader][slots]") {
  const RecordShape records{.count = 469, .per_leaf = 100, .value_pages = 2};
  LoaderOptions options;
  options.global_batch_size = 157;
  int ranks = 1;
  SECTION("in the database's order") {}
  SECTION("shuffled") { options.order = Order::kShuffle; }
  SECTION("shuffled, shared by two shards") {
    options.order = Order::kShuffle;
    ranks = 2;
  }
  // A slot of any database gets this number of records; here it is more than one epoch.
  const uint64_t first_fill = kFirstFillBytes / (records.value_pages * kPageBytes);
  for (const uint64_t count : RecordsOfSlots(records, options, ranks, 12)) {
    CHECK(count >= records.count);
    CHECK(count <= first_fill + options.global_batch_size);
  }
}

TEST_CASE("Slots in place share the memory of four slots", "[loader][slots]") {
  const RecordShape records{.count = 100'000, .per_leaf = 100, .value_pages = 1};
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.global_batch_size = 3000;
  OpenDecision facts;
  facts.record_count = records.count;
  facts.page_bytes_total = records.file_pages() * kPageBytes;
  facts.is_in_place = true;
  ScheduleOptions schedule_options;
  schedule_options.walk.record_count = records.count;
  schedule_options.batch_size = options.global_batch_size;
  schedule_options.tail = Tail::kShort;
  const Schedule schedule(schedule_options);
  const SlotLimits limits = LimitsFor(facts, options, schedule, 1, 1, kRingBytes);
  ReadPlanOptions plan_options;
  plan_options.page_format = file::PageFormat(file::DataVersion::k1, kPageBytes);
  plan_options.file_size_bytes = records.file_pages() * kPageBytes;
  plan_options.is_in_place = true;
  MadeUpPlaces places(records);
  SlotPlanner planner(schedule, 0, {1, {0}, Share::kBlock, ReuseAmong::kRank}, places, limits);
  PlannedSlot slot(plan_options);
  uint64_t largest_bytes = 0;
  for (uint64_t number = 0; number < 40; ++number) {
    places.BeginSlot();
    REQUIRE(test::Good(planner.Next(slot)));
    largest_bytes = std::max(largest_bytes, slot.reserved.length_bytes);
    CHECK(slot.reserved.offset + slot.reserved.length_bytes <= 4 * largest_bytes);
    // Four slots may be in use at the same time, and not more.
    CHECK(slot.free_after + 4 >= number);
    CHECK(slot.free_after <= number);
  }
}

TEST_CASE("A host with little free memory gets small slots", "[loader][slots]") {
  SlotLimits limits;
  limits.ring_bytes = 256 << 20;
  limits.wrap_bytes = 64 << 20;
  limits.target_bytes = 8 << 20;
  limits.scattered_bytes_max = 100 << 20;
  limits.group_bytes = 1 << 20;
  const SlotLimits plenty = limits;
  LimitToRoom(uint64_t{512} << 20, limits);
  CHECK(limits.wrap_bytes == plenty.wrap_bytes);
  CHECK(limits.scattered_bytes_max == plenty.scattered_bytes_max);
  // Scattered slots would grow into all of the window memory.
  LimitToRoom((uint64_t{512} << 20) - 2, limits);
  CHECK(limits.wrap_bytes == plenty.wrap_bytes);
  CHECK(limits.target_bytes == plenty.target_bytes);
  CHECK(limits.scattered_bytes_max == 0);
  LimitToRoom(20 << 20, limits);
  CHECK(limits.wrap_bytes == 10 << 20);
  CHECK(limits.target_bytes == (10 << 20) / 4);
  CHECK(limits.scattered_bytes_max == 0);
  CHECK(limits.ring_bytes == plenty.ring_bytes);
  // Four groups must fit in any case.
  LimitToRoom(0, limits);
  CHECK(limits.wrap_bytes >= 4 * limits.group_bytes);
  CHECK(limits.wrap_bytes < 5 * limits.group_bytes);
}

TEST_CASE("A slot plans no record of a scattered database more often than once an epoch",
          "[loader][slots]") {
  // 24 MB: more than a first filling, less than a scattered slot may hold.
  const RecordShape records{.count = 3000, .per_leaf = 100, .value_pages = 2};
  LoaderOptions options;
  options.global_batch_size = 100;
  options.order = Order::kShuffle;
  for (const uint64_t count : RecordsOfSlots(records, options, 1, 12)) CHECK(count == 3000);
}

TEST_CASE("A slot of many records on few pages has a bounded plan", "[loader][slots]") {
  // 82 MB of pages, with 100 records on each.
  const RecordShape records{.count = 2'000'000, .per_leaf = 100};
  LoaderOptions options;
  options.global_batch_size = 256;
  options.order = Order::kShuffle;
  const std::vector<uint64_t> counts = RecordsOfSlots(records, options, 1, 4);
  REQUIRE(counts.size() == 4);
  for (const uint64_t count : counts)
    CHECK(count < kScatteredRecordsMax + options.global_batch_size);
  // Each page that is read serves many of them.
  CHECK(counts.back() > 5 * records.leaf_count());
}

TEST_CASE("Slots of a large scattered database grow to half of the ring", "[loader][slots]") {
  const RecordShape records{.count = 1'000'000, .per_leaf = 100, .value_pages = 1};
  LoaderOptions options;
  options.global_batch_size = 256;
  options.order = Order::kShuffle;
  const std::vector<uint64_t> counts = RecordsOfSlots(records, options, 1, 5);
  REQUIRE(counts.size() == 5);
  // A value's page, most of a leaf page, and an entry.
  const auto least = [](uint64_t slot_bytes) {
    return static_cast<uint64_t>(0.95 * static_cast<double>(slot_bytes) /
                                 (2 * kPageBytes + sizeof(RecordEntry)));
  };
  CHECK(counts[0] > least(32 << 20));
  CHECK(counts[1] > least(64 << 20));
  for (size_t slot = 2; slot < 5; ++slot) CHECK(counts[slot] > least(126 << 20));
}

}  // namespace
}  // namespace lmdbio::load
