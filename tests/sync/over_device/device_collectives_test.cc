// Ranks that are threads reduce values on GPUs that they share, or that are several. Oracle: the
// arithmetic of number_oracle.h, to the bit. The stand-in draws the order of the streams by a seed,
// so a wait that is missing gives wrong bytes.
#include "lmdbio/sync/over_device/device_collectives.h"

#include <array>
#include <string>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_device/leader_parts.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::kOps;
using test::kTypes;
using test::Must;
using test::Random;
using test::RankOnDevice;
using test::RankSetup;
using test::RunRanksOnDevice;
using test::ValuesOfRanks;
using Found = std::vector<std::string>;

// Packs, reduces, reads and compares.
void ReduceOnce(RankOnDevice& rank, const ranks::Group& group, const DeviceValues& values,
                const Reduction& reduction, uint64_t seed, Complaints& complaints) {
  const ValuesOfRanks all(group.size(), values, seed);
  const std::string& mine = all.of[static_cast<size_t>(group.rank())];
  rank.WriteLater(values.offset, mine);
  const auto outcome = rank.AllReduce({.digest = seed}, values, reduction);
  if (!outcome) throw std::runtime_error(outcome.error().message());
  complaints.Expect(*outcome == CallOutcome::kDone, "declined");
  const std::string wrong = all.Compare(rank.ReadNow(values.offset, mine.size()), reduction);
  complaints.Expect(wrong.empty(), fmt::format("rank {}: {}", group.rank(), wrong));
}

TEST_CASE("Every type, reduction and scale gives the bits of the host", "[device_collectives]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 8);
  const EmulatedGpu gpu(static_cast<uint64_t>(rank_count));
  const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    uint64_t seed = 0;
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        for (const double scale : {1.0, -0.7}) {
          for (const size_t count : {0, 1, 77}) {
            ReduceOnce(rank, group, {.offset = 256, .count = count, .type = type}, {op, scale},
                       ++seed, mine);
          }
        }
      }
      const DeviceValues many = {.offset = 16, .count = 8001, .type = type};
      ReduceOnce(rank, group, many, {ReduceOp::kSum, 0.125}, ++seed, mine);
    }
    rank.Leave();
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Calls follow each other at any offset of the arena", "[device_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(20); ++seed) {
    INFO("seed " << seed);
    const int rank_count = static_cast<int>(2 + seed % 4);
    const EmulatedGpu gpu(seed);
    const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
      RankOnDevice rank(group, gpu.Open(), {});
      Must(rank.Make(group));
      Random random(seed);
      for (int call = 0; call < 30; ++call) {
        const DataType type = kTypes[random.Below(kTypes.size())];
        const DeviceValues values = {
            .offset = random.Below(1000), .count = random.Below(300), .type = type};
        ReduceOnce(rank, group, values, ReduceOp::kSum, random.Next(), mine);
      }
      const uint64_t end = rank.made()->arena().size_bytes;
      ReduceOnce(rank, group, {.offset = end - 4, .count = 1}, ReduceOp::kMax, seed, mine);
      rank.Leave();
    });
    CHECK(wrong == Found{});
  }
}

TEST_CASE("Each rank may have its values at another offset", "[device_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed);
    const EmulatedGpu gpu(seed);
    const Found wrong = RunRanksOnDevice(4, [&](ranks::Group& group, Complaints& mine) {
      RankOnDevice rank(group, gpu.Open(group.rank() / 2), {});
      Must(rank.Make(group));
      Random random(seed * 10 + static_cast<uint64_t>(group.rank()));
      for (uint64_t call = 1; call <= 20; ++call) {
        const DeviceValues values = {.offset = random.Below(9000), .count = 70 * call};
        const std::string around(8, static_cast<char>('a' + group.rank()));
        const uint64_t end = values.offset + 280 * call;
        rank.WriteLater(end, around);
        ReduceOnce(rank, group, values, {ReduceOp::kSum, 0.5}, 1000 * seed + call, mine);
        mine.Expect(rank.ReadNow(end, 8) == around, "more than the values has changed");
      }
      rank.Leave();
    });
    CHECK(wrong == Found{});
  }
}

TEST_CASE("The values of the root come to all ranks, to the bit", "[device_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed);
    const int rank_count = static_cast<int>(1 + seed % 5);
    const EmulatedGpu gpu(seed);
    const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
      RankOnDevice rank(group, gpu.Open(group.rank() % 2), {});
      Must(rank.Make(group));
      Random random(seed * 10 + static_cast<uint64_t>(group.rank()));
      for (uint64_t call = 0; call < 20; ++call) {
        const auto root = static_cast<size_t>(call) % static_cast<size_t>(rank_count);
        const DataType type = kTypes[call % kTypes.size()];
        const DeviceValues values = {
            .offset = random.Below(9000), .count = 37 * call, .type = type};
        const ValuesOfRanks all(rank_count, values, 1000 * seed + call);
        const std::string& own = all.of[static_cast<size_t>(group.rank())];
        rank.WriteLater(values.offset, own + "around");
        const auto outcome = rank.Broadcast({.digest = call}, values, static_cast<int>(root));
        mine.Expect(outcome && *outcome == CallOutcome::kDone, "not done");
        mine.Expect(rank.ReadNow(values.offset, own.size() + 6) == all.of[root] + "around",
                    fmt::format("rank {}, call {}: other bytes", group.rank(), call));
      }
      rank.Leave();
    });
    CHECK(wrong == Found{});
  }
}

TEST_CASE("Ranks that name different roots, or mistake a broadcast, change no arena",
          "[device_collectives]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    const bool is_other = group.rank() == 1;
    const std::string own(400, static_cast<char>('a' + group.rank()));
    const DeviceValues values = {.offset = 0, .count = 100};
    for (int kind = 0; kind < 5; ++kind) {
      rank.WriteLater(0, own);
      DeviceValues called = values;
      if (kind == 2 && is_other) called.count = 99;
      const CallTag tag = {.digest = kind == 3 && is_other ? 1U : 0U,
                           .is_declined = kind == 4 && is_other};
      const auto outcome = kind == 0 && is_other
                               ? rank.AllReduce(tag, called, ReduceOp::kSum)
                               : rank.Broadcast(tag, called, kind == 1 && is_other);
      mine.Expect(outcome && *outcome == CallOutcome::kDeclined, fmt::format("kind {}", kind));
      mine.Expect(rank.ReadNow(0, own.size()) == own, "an arena has changed");
    }
    if (group.rank() == 0) {
      const uint64_t end = rank.made()->arena().size_bytes;
      const auto outcome = rank.Broadcast({}, {.offset = end, .count = 1}, 0);
      mine.Expect(!outcome && outcome.error().code() == ErrorCode::kInvalidArgument,
                  "values outside are taken");
    }
    Must(group.Barrier());
    ReduceOnce(rank, group, values, ReduceOp::kSum, 7, mine);
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

// --- Several GPUs ------------------------------------------------------------------------------

TEST_CASE("The parts of leaders cover all values once, at multiples of a cache line",
          "[device_collectives]") {
  for (const uint64_t size :
       std::vector<uint64_t>{0, 1, 127, 128, 129, 640, 1000, (uint64_t{1} << 62) + 5}) {
    for (const uint64_t count : std::vector<uint64_t>{1, 2, 3, 8, 64}) {
      CAPTURE(size, count);
      uint64_t end = 0;
      uint64_t largest = 0;
      uint64_t least = ~uint64_t{0};
      for (uint64_t leader = 0; leader < count; ++leader) {
        const LeaderPart part = PartOfLeader(size, leader, count);
        CHECK((part.offset == end && (part.size_bytes == 0 || part.offset % 128 == 0)));
        end += part.size_bytes;
        largest = std::max(largest, part.size_bytes);
        least = std::min(least, part.size_bytes);
      }
      CHECK(end == size);
      CHECK(largest - least <= 255);
    }
  }
}

TEST_CASE("Each GPU reduces a part", "[device_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(6); ++seed) {
    INFO("seed " << seed);
    const EmulatedGpu gpu(seed);
    const Found wrong = RunRanksOnDevice(5, [&](ranks::Group& group, Complaints& mine) {
      const int ordinal = std::array{1, 1, 0, 2, 0}[static_cast<size_t>(group.rank())];
      RankOnDevice rank(group, gpu.Open(ordinal), {});
      Must(rank.Make(group));
      mine.Expect(rank.made()->Description().find("leaders: 0, 2, 3;") != std::string::npos,
                  rank.made()->Description());
      for (const size_t count : {0, 1, 31, 33, 64, 70, 5000}) {
        ReduceOnce(rank, group, {.offset = 128, .count = count}, {ReduceOp::kSum, 0.5}, count,
                   mine);
        ReduceOnce(rank, group, {.offset = 3, .count = count, .type = DataType::kInt64},
                   ReduceOp::kProduct, count, mine);
      }
      rank.Leave();
    });
    CHECK(wrong == Found{});
  }
}

TEST_CASE("Only leaders launch kernels, and only those that have a part", "[device_collectives]") {
  const EmulatedGpu gpu(1);
  std::vector<uint64_t> launched;
  const Found wrong = RunRanksOnDevice(4, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(group.rank() % 2), {});
    Must(rank.Make(group));
    for (const size_t count : {0, 32, 33}) {
      const uint64_t before = gpu->CallCount("cuLaunchKernel");
      Must(group.Barrier());
      ReduceOnce(rank, group, {.count = count}, ReduceOp::kSum, 1, mine);
      Must(group.Barrier());
      if (group.rank() == 0) launched.push_back(gpu->CallCount("cuLaunchKernel") - before);
      Must(group.Barrier());
    }
    rank.Leave();
  });
  CHECK(wrong == Found{});
  CHECK(launched == std::vector<uint64_t>{0, 1, 2});
}

// --- Calls that are not made -------------------------------------------------------------------

// Each rank writes its own bytes, makes a call that the ranks do not agree on, and finds its bytes.
void ExpectDeclined(RankOnDevice& rank, const ranks::Group& group, const CallTag& tag,
                    const DeviceValues& values, const Reduction& reduction,
                    Complaints& complaints) {
  const std::string mine(512, static_cast<char>('a' + group.rank()));
  rank.WriteLater(0, mine);
  const auto outcome = rank.AllReduce(tag, values, reduction);
  if (!outcome) throw std::runtime_error(outcome.error().message());
  complaints.Expect(*outcome == CallOutcome::kDeclined, "not declined");
  complaints.Expect(rank.ReadNow(0, mine.size()) == mine, "an arena has changed");
}

TEST_CASE("A call that the ranks do not agree on changes no arena, and the next one works",
          "[device_collectives]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    const bool is_other = group.rank() == 1;
    const DeviceValues usual = {.offset = 64, .count = 50};
    const auto decline = [&](const CallTag& tag, const DeviceValues& values,
                             const Reduction& reduction) {
      ExpectDeclined(rank, group, tag, values, reduction, mine);
      ReduceOnce(rank, group, usual, ReduceOp::kSum, 7, mine);
    };
    decline({.digest = 5, .is_declined = is_other}, usual, ReduceOp::kSum);
    decline({.digest = is_other ? 6U : 5U}, usual, ReduceOp::kSum);
    decline({}, {.offset = 64, .count = is_other ? 51U : 50U}, ReduceOp::kSum);
    const DataType type = is_other ? DataType::kInt32 : DataType::kFloat32;
    decline({}, {.offset = 64, .count = 50, .type = type}, ReduceOp::kSum);
    decline({}, usual, is_other ? ReduceOp::kMax : ReduceOp::kMin);
    decline({}, usual, {ReduceOp::kSum, is_other ? 0.5 : 0.25});
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Values outside the arena are refused, and other ranks are not asked",
          "[device_collectives]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    const uint64_t end = rank.made()->arena().size_bytes;
    const size_t all = end / sizeof(float);
    if (group.rank() == 0) {
      const uint64_t calls = gpu->CallCount(nullptr);
      for (const DeviceValues& values :
           std::vector<DeviceValues>{{.offset = 0, .count = all + 1},
                                     {.offset = 4, .count = all},
                                     {.offset = end + 1, .count = 0},
                                     {.offset = 0, .count = (~size_t{0} / 4) + 2}}) {
        const auto outcome = rank.AllReduce({}, values, ReduceOp::kSum);
        mine.Expect(!outcome && outcome.error().code() == ErrorCode::kInvalidArgument &&
                        outcome.error().message().find("float32 at offset") != std::string::npos,
                    "values outside are taken");
      }
      const auto outcome =
          rank.AllReduce({}, {.count = 1, .type = DataType::kInt32}, {ReduceOp::kSum, 1.0 / 0.0});
      mine.Expect(!outcome && outcome.error().code() == ErrorCode::kInvalidArgument,
                  "an infinite scale of integers is taken");
      mine.Expect(gpu->CallCount(nullptr) == calls, "something is enqueued");
    }
    Must(group.Barrier());
    ReduceOnce(rank, group, {.offset = 0, .count = all}, ReduceOp::kSum, 1, mine);
    ReduceOnce(rank, group, {.offset = end, .count = 0}, ReduceOp::kSum, 1, mine);
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

// --- The end -----------------------------------------------------------------------------------

TEST_CASE("Ranks that do not leave keep the memory", "[device_collectives]") {
  const EmulatedGpu gpu(1);
  const size_t kept = KeptCount();
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    ReduceOnce(rank, group, {.count = 5}, ReduceOp::kSum, 1, mine);
    rank.Drop();
  });
  CHECK(wrong == Found{});
  CHECK(KeptCount() == kept + 4);
  CHECK(gpu->Objects().allocations == 2);
}

}  // namespace
}  // namespace lmdbio::sync
