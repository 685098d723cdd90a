// Goal: sums of a library that blocks are right for each type, reduction and scale, on GPUs that
// the ranks share or not; and ranks decline together. Method: ranks are threads.
#include "lmdbio/sync/over_library/library_collectives.h"

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/sync/over_library/emulated_library.h"

namespace lmdbio::sync {
namespace {

using test::ByLibrary;
using test::Complaints;
using test::EmulatedGpu;
using test::EmulatedLibrary;
using test::ExactValuesOfRanks;
using test::Good;
using test::LibraryBoard;
using test::Must;
using test::RankOnDevice;
using test::RunRanksOnDevice;
using test::ValuesOfRanks;
using Lines = std::vector<std::string>;

constexpr std::array kTypes{DataType::kFloat32, DataType::kFloat64, DataType::kBFloat16,
                            DataType::kInt32, DataType::kInt64};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// The devices that the ranks use.
enum class GpuOfRank { kOneEach, kFirst };

struct LibraryJob {
  explicit LibraryJob(int its_rank_count, uint64_t seed = 1,
                      GpuOfRank its_gpus = GpuOfRank::kOneEach)
      : gpu(seed), rank_count(its_rank_count), gpus(its_gpus) {
    gpu->SetDeviceCount(test::kEmulatedDevicesMax);
  }

  // Makes the ranks, and runs `body` on each. Returns all complaints.
  using Body = std::function<void(ranks::Group& group, RankOnDevice& rank, Complaints& mine)>;
  Lines Run(const Body& body) {
    const LibraryBoard board(rank_count);
    std::atomic<int> calls = 0;
    Lines lines = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
      const auto library = std::make_shared<EmulatedLibrary>(board, group.rank());
      RankOnDevice rank(group, gpu.Open(gpus == GpuOfRank::kFirst ? 0 : group.rank()),
                        {.make = ByLibrary(library)});
      Must(rank.Make(group));
      body(group, rank, mine);
      rank.Leave();
      calls += library->call_count();
    });
    call_count = calls.load();
    if (gpu->Objects().total() != 0) lines.emplace_back("objects are left");
    return lines;
  }

  EmulatedGpu gpu;
  const int rank_count;
  const GpuOfRank gpus;
  int call_count = 0;  // of the library, of all ranks
};

// Reduces once, and compares.
void ReduceOnce(ranks::Group& group, RankOnDevice& rank, const ValuesOfRanks& all,
                const Reduction& reduction, Complaints& mine) {
  const std::string& own = all.of[static_cast<size_t>(group.rank())];
  rank.WriteLater(all.values.offset, own);
  const auto outcome = rank.AllReduce({.digest = 7}, all.values, reduction);
  mine.Expect(outcome && *outcome == CallOutcome::kDone, "a call is not done");
  const std::string wrong = all.Compare(rank.ReadNow(all.values.offset, own.size()), reduction);
  mine.Expect(wrong.empty(), wrong);
}

TEST_CASE("A library reduces values of each type to their serial reduction",
          "[library_collectives]") {
  const int rank_count = GENERATE(1, 2, 4);
  const auto gpus = GENERATE(GpuOfRank::kOneEach, GpuOfRank::kFirst);
  CAPTURE(rank_count, static_cast<int>(gpus));
  LibraryJob job(rank_count, static_cast<uint64_t>(rank_count), gpus);
  CHECK(job.Run([](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
    uint64_t seed = 0;
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        for (const size_t count : {size_t{1}, size_t{77}, size_t{2000}}) {
          const DeviceValues values = {.offset = 64, .count = count, .type = type};
          ReduceOnce(group, rank, ExactValuesOfRanks(group.size(), values, ++seed), op, mine);
        }
      }
    }
  }) == Lines());
}

TEST_CASE("A scale is applied once to what a library has reduced", "[library_collectives]") {
  LibraryJob job(3, 5);
  CHECK(job.Run([](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
    for (const DataType type : kTypes) {
      for (const double scale : {1.0 / 3, 0.5, -2.0, 0.0}) {
        const DeviceValues values = {.offset = 16, .count = 99, .type = type};
        const ValuesOfRanks all = ExactValuesOfRanks(group.size(), values, 3);
        ReduceOnce(group, rank, all, {ReduceOp::kSum, scale}, mine);
      }
    }
    const DeviceValues whole = {.count = 1, .type = DataType::kInt32};
    const auto infinite =
        rank.AllReduce({}, whole, {ReduceOp::kSum, std::numeric_limits<double>::infinity()});
    mine.Expect(!infinite && infinite.error().code() == ErrorCode::kInvalidArgument,
                "an infinite scale of integers");
  }) == Lines());
}

TEST_CASE("A library sees the work that the streams of all ranks had before",
          "[library_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(8); ++seed) {
    INFO("seed " << seed);
    LibraryJob job(3, seed);
    CHECK(job.Run([&](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
      constexpr size_t kCalls = RankOnDevice::kSlots;
      std::vector<ValuesOfRanks> calls;
      for (size_t call = 0; call < kCalls; ++call) {
        // The same places, so that a call that begins too early shows; each rank its own.
        const DeviceValues values = {.offset = static_cast<uint64_t>(group.rank()) * 256,
                                     .count = 50 + call};
        calls.push_back(ExactValuesOfRanks(group.size(), values, seed * 10 + call));
        const std::string& own = calls[call].of[static_cast<size_t>(group.rank())];
        rank.WriteLater(values.offset, own, call);
        Good(rank.AllReduce({.digest = call}, values, {ReduceOp::kSum, 0.5}));
        rank.ReadLater(values.offset, own.size(), call);
      }
      rank.Drain();
      for (size_t call = 0; call < kCalls; ++call) {
        const DeviceValues& values = calls[call].values;
        const std::string wrong = calls[call].Compare(
            rank.BytesRead(values.offset, values.size_bytes(), call), {ReduceOp::kSum, 0.5});
        mine.Expect(wrong.empty(), wrong);
      }
    }) == Lines());
  }
}

TEST_CASE("A library copies the values of the root to all ranks", "[library_collectives]") {
  LibraryJob job(4, 3);
  CHECK(job.Run([](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
    mine.Expect(rank.made()->has_broadcast(), "no broadcast");
    for (int root = 0; root < group.size(); ++root) {
      const DeviceValues values = {.offset = 4, .count = 333, .type = DataType::kFloat16};
      const ValuesOfRanks all(group.size(), values, static_cast<uint64_t>(root) + 1);
      rank.WriteLater(4, all.of[static_cast<size_t>(group.rank())]);
      Good(rank.Broadcast({}, values, root));
      mine.Expect(rank.ReadNow(4, values.size_bytes()) == all.of[static_cast<size_t>(root)],
                  fmt::format("root {}: other bytes", root));
    }
    Good(rank.Broadcast({}, {.count = 0}, 1));
  }) == Lines());
  CHECK(job.call_count == 16);
}

TEST_CASE("Ranks that make different calls, or decline, do not call the library",
          "[library_collectives]") {
  LibraryJob job(2, 4);
  CHECK(job.Run([](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
    const DeviceValues values = {.count = 20};
    const bool is_first = group.rank() == 0;
    rank.WriteLater(0, std::string(80, 'x'));
    const auto declines = [&](const CallTag& tag, const DeviceValues& its,
                              const Reduction& reduction, const std::string& what) {
      const auto outcome = rank.AllReduce(tag, its, reduction);
      mine.Expect(outcome && *outcome == CallOutcome::kDeclined, what);
      mine.Expect(rank.ReadNow(0, 80) == std::string(80, 'x'), what + ": values changed");
    };
    declines({.is_declined = is_first}, values, {ReduceOp::kSum, 0.5}, "a rank declines");
    declines({.digest = is_first ? 1U : 2U}, values, ReduceOp::kSum, "digests");
    declines({}, {.count = is_first ? 20U : 10U}, ReduceOp::kSum, "counts");
    declines({}, values, is_first ? ReduceOp::kMin : ReduceOp::kMax, "reductions");
    declines({}, values, {ReduceOp::kSum, is_first ? 1 : 0.5}, "scales");
    const auto sent = rank.Broadcast({}, values, group.rank());
    mine.Expect(sent && *sent == CallOutcome::kDeclined, "roots");
    ReduceOnce(group, rank, ExactValuesOfRanks(2, values, 1), ReduceOp::kSum, mine);
  }) == Lines());
  CHECK(job.call_count == 2);
}

TEST_CASE("Values outside the arena are refused, and no values are no call of the library",
          "[library_collectives]") {
  LibraryJob job(2);
  CHECK(job.Run([](ranks::Group&, RankOnDevice& rank, Complaints& mine) {
    ArenaCollectives& made = *rank.made();
    const uint64_t end = made.arena().size_bytes;
    mine.Expect(end == 64 << 10, "another arena");
    mine.Expect(made.ResultOf({.offset = 12}) == made.arena().begin + 12, "another place");
    const DeviceValues outside = {.offset = end - 4, .count = 2};
    for (const auto& refused :
         {rank.AllReduce({}, outside, ReduceOp::kSum), rank.Broadcast({}, outside, 0)}) {
      mine.Expect(!refused && refused.error().code() == ErrorCode::kInvalidArgument, "outside");
    }
    const auto nothing = rank.AllReduce({}, {.offset = end}, {ReduceOp::kSum, 0.5});
    mine.Expect(nothing && *nothing == CallOutcome::kDone, "no values");
    mine.Expect(made.Description() ==
                    "reductions by the stand-in: 2 ranks; arenas of 65536 bytes; through the "
                    "host: float16",
                made.Description());
    mine.Expect(made.Reduces(DataType::kFloat32, ReduceOp::kSum), "float32 is refused");
    mine.Expect(!made.Reduces(DataType::kFloat16, ReduceOp::kSum), "float16 is taken");
    mine.Expect(!made.result_state()->is_void(), "void");
    mine.Expect(made.Check().has_value(), "not going on");
  }) == Lines());
  CHECK(job.call_count == 0);
}

TEST_CASE("A rank that leaves a library while another one makes a call is told so",
          "[library_collectives]") {
  const EmulatedGpu gpu;
  const LibraryBoard board(2);
  const size_t kept = KeptCount();
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          const auto library = std::make_shared<EmulatedLibrary>(board, group.rank());
          RankOnDevice rank(group, gpu.Open(0), {.make = ByLibrary(library)});
          Must(rank.Make(group));
          if (group.rank() == 0) {
            const Status left = rank.made()->LeaveInPeace();
            mine.Expect(!left && left.error().code() == ErrorCode::kPeerFailed, "it has left");
          } else {
            const auto outcome = rank.AllReduce({}, {.count = 5}, ReduceOp::kSum);
            mine.Expect(outcome && *outcome == CallOutcome::kDeclined, "not declined");
          }
          Must(group.Barrier());
        }) == Lines());
  CHECK(KeptCount() == kept + 4);  // the arenas and the libraries
}

TEST_CASE("A rank without kernels for its GPU is refused by name on all ranks",
          "[library_collectives]") {
  const EmulatedGpu gpu;
  const LibraryBoard board(2);
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          const auto library = std::make_shared<EmulatedLibrary>(board, group.rank());
          RankOnDevice rank(group, gpu.Open(0),
                            {.has_kernels = group.rank() == 0, .make = ByLibrary(library)});
          const Status made = rank.Make(group);
          if (made) return mine.Expect(false, "no error");
          mine.Expect(made.error().code() == ErrorCode::kUnsupported, "another code");
          mine.Expect(made.error().message() ==
                          "the ranks cannot use the stand-in on their GPUs: rank 1 has no kernels "
                          "for its GPU",
                      made.error().message());
        }) == Lines());
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("A child of fork() does not call the library", "[library_collectives]") {
  const EmulatedGpu gpu;
  const LibraryBoard board(1);
  const auto group = ranks::SoloGroup();
  const auto library = std::make_shared<EmulatedLibrary>(board, 0);
  RankOnDevice rank(*group, gpu.Open(0), {.make = ByLibrary(library)});
  Must(rank.Make(*group));
  test::CheckInChild([&] {
    const auto refused = rank.AllReduce({}, {.count = 4}, ReduceOp::kSum);
    CHILD_CHECK(!refused && refused.error().code() == ErrorCode::kUnsupported);
    rank.Drop();
    return test::Verdict::kRight;
  });
  CHECK(library->call_count() == 0);
  rank.Leave();
}

}  // namespace
}  // namespace lmdbio::sync
