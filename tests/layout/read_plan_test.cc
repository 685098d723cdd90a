#include "lmdbio/layout/read_plan.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "tests/support/random.h"

namespace lmdbio::layout {
namespace {

// The synthetic file: every byte tells its offset.
std::byte ByteAt(uint64_t offset) { return static_cast<std::byte>(offset * 2654435761U >> 13); }

std::vector<std::byte> Fetch(const ReadPlan& plan, uint64_t file_bytes) {
  std::vector<std::byte> buffer(plan.buffer_bytes(), std::byte{0});
  std::vector<bool> taken(buffer.size(), false);
  for (const PlannedBlock& block : plan.blocks()) {
    REQUIRE(block.file.offset + block.file.length_bytes <= file_bytes);
    REQUIRE(block.file.offset % kStretchAlignBytes == block.at % kStretchAlignBytes);
    for (uint64_t i = 0; i < block.file.length_bytes; ++i) {
      REQUIRE_FALSE(taken[block.at + i]);
      taken[block.at + i] = true;
      buffer[block.at + i] = ByteAt(block.file.offset + i);
    }
  }
  return buffer;
}

bool Holds(const std::vector<std::byte>& buffer, uint64_t at, uint64_t offset, uint64_t length) {
  if (at + length > buffer.size()) return false;
  for (uint64_t i = 0; i < length; ++i) {
    if (buffer[at + i] != ByteAt(offset + i)) return false;
  }
  return true;
}

// Adds runs at random places: values inside their page, also empty ones at its very end, values in
// overflow runs, homes apart from the leaf, pages named twice.
void AddRandomRuns(ReadPlan& plan, test::Random& random, uint64_t page_bytes, uint64_t pages) {
  const uint64_t runs = random.Between(1, 12);
  for (uint64_t r = 0; r < runs; ++r) {
    RecordRun run;
    run.leaf = PageNo{random.Between(2, pages - 1)};
    run.home = random.Below(4) == 0 ? PageNo{random.Between(2, pages - 1)} : run.leaf;
    run.kind = run.home == run.leaf ? RunKind::kNodes : RunKind::kDuplicates;
    std::vector<Extent> values;
    for (uint64_t i = random.Between(1, 6); i > 0; --i) {
      const uint64_t home_begin = run.home.value * page_bytes;
      switch (random.Below(run.kind == RunKind::kNodes ? 3 : 2)) {
        case 0:
          values.push_back({home_begin + random.Between(20, page_bytes - 40), random.Below(20)});
          break;
        case 1:
          values.push_back({home_begin + page_bytes, 0});
          break;
        default: {
          const uint64_t first = random.Between(2, pages - 1);
          const uint64_t bytes_max = (pages - first) * page_bytes - 16;
          values.push_back(
              {first * page_bytes + 16, std::min(bytes_max, random.Between(1, 5 * page_bytes))});
        }
      }
    }
    run.values = values;
    REQUIRE(plan.Add(run).has_value());
  }
}

// Goal: whatever the records, each of their bytes lies where the plan says once blocks are fetched.
TEST_CASE("A plan's blocks put every page where the plan says", "[layout]") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    test::Random random(seed);
    PlanOptions options;
    const uint32_t page_bytes = 512U << random.Below(6);
    const uint64_t pages = random.Between(4, 120);
    options.page_format = {format::DataVersion::k1, page_bytes};
    options.file_size_bytes = pages * page_bytes;
    options.coalescing = random.Below(3) == 0 ? Coalescing::kNone : Coalescing::kNeighbours;
    options.block_bytes_max = kStretchAlignBytes << random.Below(6);
    ReadPlan plan(options);
    AddRandomRuns(plan, random, page_bytes, pages);
    plan.Finish();
    const std::vector<std::byte> buffer = Fetch(plan, options.file_size_bytes);
    for (const PlannedRun& run : plan.runs()) {
      REQUIRE(Holds(buffer, run.leaf_at, run.leaf.value * page_bytes, page_bytes));
      REQUIRE(Holds(buffer, run.home_at, run.home.value * page_bytes, page_bytes));
    }
    for (const PlannedValue& value : plan.values()) {
      REQUIRE(Holds(buffer, value.at, value.file.offset, value.file.length_bytes));
    }
    CHECK(plan.useful_bytes() <= plan.read_bytes());
    if (page_bytes >= kStretchAlignBytes) {
      CHECK(static_cast<double>(plan.read_bytes()) <=
            static_cast<double>(plan.useful_bytes()) * (1 + options.gap_share_max));
    }
  }
}

TEST_CASE("Neighbours become one block, and without coalescing one for each record", "[layout]") {
  PlanOptions options;
  options.page_format = {format::DataVersion::k1, 4096};
  options.file_size_bytes = 100 * 4096;
  const std::vector<Extent> values = {{11 * 4096 + 16, 3080}, {12 * 4096 + 16, 3080}};
  for (const auto& [coalescing, blocks] :
       {std::pair{Coalescing::kNeighbours, 1U}, std::pair{Coalescing::kNone, 3U}}) {
    options.coalescing = coalescing;
    ReadPlan plan(options);
    REQUIRE(plan.Add({{0}, PageNo{10}, 0, RunKind::kNodes, PageNo{10}, values, {}}).has_value());
    plan.Finish();
    CHECK(plan.blocks().size() == blocks);
    CHECK(plan.read_bytes() == 3 * 4096);
  }
}

}  // namespace
}  // namespace lmdbio::layout
