// Goal: budgets of different sizes give reads of different sizes, and the curve of the storage
// decides between the bounds. Oracle: the rate of the curve, computed here.
#include "lmdbio/load/plan/chunk_size.h"

#include "lmdbio/load/plan/read_plan.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr ReadCost kCosts[] = {{0, 1e-9},    {10e-6, 0.5e-9}, {31e-6, 1e-9}, {1e-3, 1e-9},
                               {8e-3, 1e-9}, {1, 1e-9},       {1, 0}};

TEST_CASE("The saturating size is the first with 95 % of the best rate", "[plan][chunk]") {
  for (const ReadCost& cost : {kCosts[1], kCosts[2], kCosts[3], kCosts[4]}) {
    const auto bytes = static_cast<double>(SaturatingBytes(cost));
    const double best = 1 / cost.byte_s;
    CHECK(bytes / (cost.request_s + bytes * cost.byte_s) == Approx(0.95 * best));
  }
  CHECK(SaturatingBytes(kCosts[0]) == 0);
}

TEST_CASE("Budgets of 64 MiB, 256 MiB and 2.5 GiB give different chunks", "[plan][chunk]") {
  for (const ReadCost& cost : kCosts) {
    CAPTURE(cost.request_s, cost.byte_s);
    const uint64_t small = ChunkBytes(64 * kMiB, cost);
    const uint64_t middle = ChunkBytes(256 * kMiB, cost);
    const uint64_t large = ChunkBytes(2560 * kMiB, cost);
    CHECK(small >= 8 * kMiB);
    CHECK(small < middle);
    CHECK(middle < large);
    CHECK(large <= 640 * kMiB);
  }
}

TEST_CASE("A chunk follows the curve between an eighth and a quarter of the budget",
          "[plan][chunk]") {
  const ReadCost cost = kCosts[3];  // 19 MB
  CHECK(ChunkBytes(64 * kMiB, cost) == 16 * kMiB);
  CHECK(ChunkBytes(100 * kMiB, cost) == SaturatingBytes(cost));
  CHECK(ChunkBytes(256 * kMiB, cost) == 32 * kMiB);
}

TEST_CASE("A read holds the part of one reader", "[plan][chunk]") {
  CHECK(ChunkReadBytes(8 * kMiB, 0, 1) == 8 * kMiB);
  CHECK(ChunkReadBytes(8 * kMiB, kMiB, 1) == 9 * kMiB);
  CHECK(ChunkReadBytes(8 * kMiB, 0, 3) % kStretchAlignBytes == 0);
  CHECK(3 * ChunkReadBytes(8 * kMiB, 0, 3) >= 8 * kMiB);
  CHECK(ChunkReadBytes(uint64_t{1} << 40, 0, 1) == uint64_t{1} << 30);
  CHECK(ChunkReadBytes(1, 0, 2) == kStretchAlignBytes);
}

}  // namespace
}  // namespace lmdbio::load
