// Several GPUs reduce few values in one shot. Oracle: the arithmetic of number_oracle.h, to the
// bit. The stand-in draws the order of the streams by a seed, so a wait that is missing gives wrong
// bytes.
#include <array>
#include <string>
#include <vector>

#include "lmdbio/sync/over_device/device_collectives.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::kOps;
using test::kTypes;
using test::Must;
using test::RankOnDevice;
using test::RankSetup;
using test::RunRanksOnDevice;
using test::ValuesOfRanks;
using Found = std::vector<std::string>;

constexpr uint64_t kOneShotBytes = 616;  // 77 values of 8 bytes

RankSetup InOneShot(uint64_t bytes = kOneShotBytes) {
  return {.options = {.arena_bytes = 64 << 10, .one_shot_bytes = bytes}};
}

// Five ranks on three GPUs, whose leaders are 0, 2 and 3.
std::shared_ptr<device::Device> OpenOneOfThree(const EmulatedGpu& gpu, const ranks::Group& group) {
  return gpu.Open(std::array{1, 1, 0, 2, 0}[static_cast<size_t>(group.rank())]);
}

// Packs, reduces, reads the result, and compares.
void ReduceInOneShot(RankOnDevice& rank, const ranks::Group& group, const DeviceValues& values,
                     const Reduction& reduction, uint64_t seed, Complaints& complaints) {
  const ValuesOfRanks all(group.size(), values, seed);
  const std::string& mine = all.of[static_cast<size_t>(group.rank())];
  rank.WriteLater(values.offset, mine + "around");
  const auto outcome = rank.AllReduce({.digest = seed}, values, reduction);
  if (!outcome) throw std::runtime_error(outcome.error().message());
  complaints.Expect(*outcome == CallOutcome::kDone, "declined");
  rank.ReadResultLater(values, mine.size());
  Must(rank.stream().Synchronize());
  const std::string wrong = all.Compare(rank.BytesRead(values.offset, mine.size()), reduction);
  complaints.Expect(wrong.empty(), fmt::format("rank {}: {}", group.rank(), wrong));
  const std::string left = rank.ReadNow(values.offset, mine.size() + 6);
  complaints.Expect(left.ends_with("around"), "more than the values has changed");
  if (values.result == ResultPlace::kAnywhere && mine.size() <= kOneShotBytes) {
    complaints.Expect(left.starts_with(mine), "the values have changed");
  }
}

TEST_CASE("Every type, reduction and scale gives the bits of the host in one shot", "[one_shot]") {
  const auto place = GENERATE(ResultPlace::kInPlace, ResultPlace::kAnywhere);
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(5, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, OpenOneOfThree(gpu, group), InOneShot());
    Must(rank.Make(group));
    uint64_t seed = 0;
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        for (const double scale : {1.0, -0.7}) {
          for (const size_t count : {0, 1, 77}) {
            const DeviceValues values = {
                .offset = 256, .count = count, .type = type, .result = place};
            ReduceInOneShot(rank, group, values, {op, scale}, ++seed, mine);
          }
        }
      }
    }
    rank.Leave();
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Calls of any size and place follow each other", "[one_shot]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed);
    const EmulatedGpu gpu(seed);
    const Found wrong = RunRanksOnDevice(5, [&](ranks::Group& group, Complaints& mine) {
      RankOnDevice rank(group, OpenOneOfThree(gpu, group), InOneShot());
      Must(rank.Make(group));
      test::Random sizes(seed);
      test::Random own(seed * 10 + static_cast<uint64_t>(group.rank()));
      for (uint64_t call = 1; call <= 30; ++call) {
        const DeviceValues values = {
            .offset = own.Below(9000),
            .count = sizes.Below(200),
            .result = own.Below(2) == 0 ? ResultPlace::kInPlace : ResultPlace::kAnywhere};
        ReduceInOneShot(rank, group, values, {ReduceOp::kSum, 0.5}, 1000 * seed + call, mine);
      }
      rank.Leave();
    });
    CHECK(wrong == Found{});
  }
}

TEST_CASE("Each leader launches in one shot, and a part is that of fewer for more values",
          "[one_shot]") {
  const EmulatedGpu gpu(1);
  std::vector<uint64_t> launched;
  const Found wrong = RunRanksOnDevice(5, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, OpenOneOfThree(gpu, group), InOneShot(128));
    Must(rank.Make(group));
    for (const size_t count : {0, 1, 32, 33}) {
      const uint64_t before = gpu->CallCount("cuLaunchKernel");
      Must(group.Barrier());
      ReduceInOneShot(rank, group, {.count = count}, ReduceOp::kSum, 1, mine);
      Must(group.Barrier());
      if (group.rank() == 0) launched.push_back(gpu->CallCount("cuLaunchKernel") - before);
      Must(group.Barrier());
    }
    rank.Leave();
  });
  CHECK(wrong == Found{});
  CHECK(launched == std::vector<uint64_t>{0, 3, 3, 2});
}

TEST_CASE("Results of one shot lie behind the arena, which stays as large", "[one_shot]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(group.rank()),
                      {.options = {.arena_bytes = 1000, .one_shot_bytes = 2000}});
    Must(rank.Make(group));
    const device::DeviceSpan arena = rank.made()->arena();
    const DeviceValues all = {.count = 250, .result = ResultPlace::kAnywhere};
    mine.Expect(arena.size_bytes == 1000, "another size");
    mine.Expect(rank.made()->ResultOf(all) == arena.begin + 1024, "another place");
    mine.Expect(rank.made()->ResultOf({.offset = 8, .count = 1}) == arena.begin + 8,
                "a result is not in place");
    mine.Expect(rank.made()->Description() ==
                    "reductions on GPUs: 2 ranks; leaders: 0, 1; order 'host'; arenas of 1000 "
                    "bytes; up to 1000 bytes in one shot",
                rank.made()->Description());
    const auto outcome = rank.AllReduce({}, {.count = 251}, ReduceOp::kSum);
    mine.Expect(!outcome && outcome.error().code() == ErrorCode::kInvalidArgument,
                "values that reach into the results are taken");
    Must(group.Barrier());
    ReduceInOneShot(rank, group, all, ReduceOp::kSum, 1, mine);
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Ranks on one GPU have no way of one shot", "[one_shot]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), InOneShot());
    Must(rank.Make(group));
    const DeviceValues values = {.offset = 8, .count = 5, .result = ResultPlace::kAnywhere};
    mine.Expect(rank.made()->ResultOf(values) == rank.made()->arena().begin + 8,
                "a result is not in place");
    mine.Expect(rank.made()->Description().find("one shot") == std::string::npos,
                rank.made()->Description());
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Ranks with another size of one shot make nothing", "[one_shot]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(group.rank()),
                      InOneShot(static_cast<uint64_t>(group.rank() + 1) * 8));
    const Status made = rank.Make(group);
    const auto expected = group.rank() == 0 ? ErrorCode::kPeerFailed : ErrorCode::kInvalidArgument;
    mine.Expect(!made && made.error().code() == expected, "another end");
  });
  CHECK(wrong == Found{});
}

}  // namespace
}  // namespace lmdbio::sync
