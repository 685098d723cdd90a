#include "lmdbio/loader/schedule.h"

#include <catch2/catch.hpp>

#include <vector>

namespace lmdbio::loader {
namespace {

// Goal: the arithmetic equals counting, for every small case.
TEST_CASE("Schedule and shares equal counting", "[loader]") {
  for (uint64_t n = 1; n <= 9; ++n) {
    for (uint64_t b = 1; b <= 11; ++b) {
      for (const Tail tail : {Tail::kWrap, Tail::kShort, Tail::kDrop}) {
        if (tail == Tail::kDrop && b > n) continue;
        const Schedule schedule(n, b, tail);
        for (int ranks = 1; ranks <= 12; ++ranks) {
          for (const Share share : {Share::kBlock, Share::kRoundRobin}) {
            for (uint64_t number = 0; number < 7; ++number) {
              const BatchSpan batch = schedule.Batch(number);
              std::vector<uint64_t> counted(static_cast<size_t>(ranks), 0);
              int last_owner = 0;
              for (uint64_t i = 0; i < batch.record_count; ++i) {
                const int owner = OwnerOf(batch, batch.first_position + i, share, ranks);
                REQUIRE((owner >= 0 && owner < ranks));
                if (share == Share::kBlock) REQUIRE(owner >= last_owner);
                last_owner = owner;
                ++counted[static_cast<size_t>(owner)];
              }
              for (int rank = 0; rank < ranks; ++rank) {
                REQUIRE(ShareCount(batch, share, rank, ranks) ==
                        counted[static_cast<size_t>(rank)]);
              }
            }
          }
        }
      }
    }
  }
}

// Goal: what Caffe's solvers see, from the closed form of their skipping cursor.
TEST_CASE("Round-robin shares are those of Caffe's solvers", "[loader]") {
  constexpr uint64_t kRecords = 101, kBatchOfSolver = 7, kSolvers = 3;
  const Schedule schedule(kRecords, kBatchOfSolver * kSolvers, Tail::kWrap);
  for (uint64_t t = 0; t < 20; ++t) {
    const BatchSpan batch = schedule.Batch(t);
    for (uint64_t r = 0; r < kSolvers; ++r) {
      for (uint64_t i = 0; i < kBatchOfSolver; ++i) {
        const uint64_t position = (t * kBatchOfSolver + i) * kSolvers + r;
        REQUIRE(OwnerOf(batch, position, Share::kRoundRobin, kSolvers) == static_cast<int>(r));
        REQUIRE(schedule.Record(position).value == position % kRecords);
      }
    }
  }
}

TEST_CASE("Only the batch that reaches an epoch's last record ends it", "[loader]") {
  const Schedule whole(100, 25, Tail::kWrap);
  CHECK_FALSE(whole.Batch(2).ends_epoch);
  CHECK(whole.Batch(3).ends_epoch);
  CHECK(whole.Batch(4).epoch == 1);
  const Schedule cut(100, 30, Tail::kShort);
  CHECK(cut.Batch(3).record_count == 10);
  CHECK(cut.Batch(3).ends_epoch);
  CHECK(cut.Batch(4).first_position == 100);
  const Schedule dropped(100, 30, Tail::kDrop);
  CHECK(dropped.Batch(2).ends_epoch);
  CHECK(dropped.Batch(3).first_position == 100);
}

}  // namespace
}  // namespace lmdbio::loader
