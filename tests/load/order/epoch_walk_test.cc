// Goal: in every order an epoch has each record once; blocks stay together and come once.
#include "lmdbio/load/order/epoch_walk.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

std::vector<WalkOptions> AllWalks(uint64_t record_count) {
  std::vector<WalkOptions> walks;
  walks.push_back({record_count, Order::kSequential, Shuffle::kGlobal, 0, 1});
  walks.push_back({record_count, Order::kShuffle, Shuffle::kGlobal, 5, 1});
  for (const uint64_t block : {uint64_t{1}, uint64_t{2}, uint64_t{7}, uint64_t{64}, record_count}) {
    walks.push_back({record_count, Order::kShuffle, Shuffle::kBlock, 5, block});
  }
  return walks;
}

TEST_CASE("An epoch has each record once, and PlaceOf inverts RecordAt", "[order][walk]") {
  for (const uint64_t record_count : {1U, 2U, 3U, 63U, 64U, 65U, 97U, 1000U, 1797U, 65'536U}) {
    for (const WalkOptions& options : AllWalks(record_count)) {
      for (const uint64_t epoch : {0U, 1U, 1000U}) {
        CAPTURE(record_count, static_cast<int>(options.order), static_cast<int>(options.shuffle),
                options.block_records, epoch);
        const EpochWalk walk(options, epoch);
        std::vector<bool> seen(record_count, false);
        for (uint64_t k = 0; k < record_count; ++k) {
          const RecordIndex record = walk.RecordAt(k);
          REQUIRE(record.value < record_count);
          REQUIRE_FALSE(seen[record.value]);
          seen[record.value] = true;
          REQUIRE(walk.PlaceOf(record) == k);
        }
      }
    }
  }
}

TEST_CASE("RunAt and Fill agree with RecordAt", "[order][walk]") {
  for (const uint64_t record_count : {1U, 97U, 1000U}) {
    for (const WalkOptions& options : AllWalks(record_count)) {
      const EpochWalk walk(options, 3);
      std::vector<RecordIndex> filled(record_count);
      walk.Fill(0, filled);
      for (uint64_t k = 0; k < record_count; ++k) {
        CAPTURE(record_count, options.block_records, k);
        REQUIRE(filled[k] == walk.RecordAt(k));
        const WalkRun run = walk.RunAt(k, 10);
        REQUIRE(run.count >= 1);
        REQUIRE(run.count <= 10);
        for (uint64_t i = 0; i < run.count; ++i) {
          REQUIRE(walk.RecordAt(k + i).value == run.first.value + i);
        }
      }
    }
  }
}

TEST_CASE("Blocks stay together", "[order][walk]") {
  for (const uint64_t record_count : {100U, 101U, 109U, 110U}) {
    const uint64_t size = 10;
    const EpochWalk walk({record_count, Order::kShuffle, Shuffle::kBlock, 1, size}, 0);
    uint64_t blocks = 0;
    for (uint64_t k = 0; k < record_count; ++blocks) {
      const uint64_t first = walk.RecordAt(k).value;
      REQUIRE(first % size == 0);
      const uint64_t length = std::min(size, record_count - first);
      REQUIRE(walk.RunAt(k, 1000).count == length);
      k += length;
    }
    REQUIRE(blocks == (record_count + size - 1) / size);
  }
}

TEST_CASE("Different seeds and epochs give different orders", "[order][walk]") {
  const auto walk_of = [](uint64_t seed, uint64_t epoch, Shuffle shuffle) {
    const EpochWalk walk({1000, Order::kShuffle, shuffle, seed, 10}, epoch);
    std::vector<RecordIndex> records(1000);
    walk.Fill(0, records);
    return records;
  };
  for (const Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kBlock}) {
    const auto same = [&](uint64_t seed, uint64_t epoch) {
      return walk_of(7, 2, shuffle) == walk_of(seed, epoch, shuffle);
    };
    CHECK(same(7, 2));
    CHECK_FALSE(same(7, 3));
    CHECK_FALSE(same(8, 2));
    CHECK_FALSE(same(8, 1));
    CHECK_FALSE(same(2, 7));
  }
}

TEST_CASE("Shuffled walks are frozen", "[order][walk]") {
  const auto first_of = [](Shuffle shuffle) {
    const EpochWalk walk({1797, Order::kShuffle, shuffle, 42, 10}, 3);
    std::vector<uint64_t> records;
    for (uint64_t k = 1790; k < 1797; ++k) records.push_back(walk.RecordAt(k).value);
    return records;
  };
  CHECK(first_of(Shuffle::kGlobal) == std::vector<uint64_t>{1427, 289, 681, 1295, 1435, 1545, 745});
  CHECK(first_of(Shuffle::kBlock) ==
        std::vector<uint64_t>{1733, 1734, 1735, 1736, 1737, 1738, 1739});
}

}  // namespace
}  // namespace lmdbio::load
