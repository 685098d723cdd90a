// Goal: NCCL's sums are right for each type, reduction and scale, whatever order it adds in; ranks
// decline together; and ranks that NCCL cannot have are refused on all of them. Method: ranks are
// threads with a GPU each; the stand-in enqueues its work some looks after the call.
#include "lmdbio/sync/over_nccl/nccl_collectives.h"

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/sync/over_nccl/nccl_rank.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ByNccl;
using test::Complaints;
using test::EmulatedNccl;
using test::ExactValuesOfRanks;
using test::Good;
using test::kOps;
using test::kTypes;
using test::Must;
using test::RankOnDevice;
using test::RunRanksOnDevice;
using test::ValuesOfRanks;
using Lines = std::vector<std::string>;

// Makes the ranks of a job, and runs `body` on each.
using NcclBody = std::function<void(ranks::Group& group, RankOnDevice& rank, Complaints& mine)>;
Lines RunByNccl(int rank_count, const EmulatedNccl& nccl, const NcclBody& body) {
  return RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
    const auto health = Good(ranks::HostHealth::Create(group, 60s));
    RankOnDevice rank(group, nccl.gpu().Open(group.rank()),
                      {.health = health.get(), .make = ByNccl(*health)});
    Must(rank.Make(group));
    body(group, rank, mine);
    rank.Leave();
  });
}

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

TEST_CASE("NCCL reduces values of each type to their serial reduction", "[nccl_collectives]") {
  const int rank_count = GENERATE(1, 2, 3, 4);
  const int looks = GENERATE(0, 3);
  CAPTURE(rank_count, looks);
  const EmulatedNccl nccl(static_cast<uint64_t>(rank_count), looks);
  CHECK(RunByNccl(rank_count, nccl, [](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
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
  CHECK(nccl->CommCount() == 0);
  CHECK(nccl.gpu()->Objects().total() == 0);
}

TEST_CASE("A scale is applied once to what NCCL has reduced", "[nccl_collectives]") {
  const EmulatedNccl nccl(5, 1);
  CHECK(RunByNccl(3, nccl, [](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
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

// No host reduces again: the order is that of the stand-in, which is not the host's.
TEST_CASE("The bits are those of NCCL's order, and the same on all ranks", "[nccl_collectives]") {
  const EmulatedNccl nccl(2);
  constexpr int kRanks = 4;
  const DeviceValues values = {.count = 500, .type = DataType::kFloat32};
  const ValuesOfRanks all(kRanks, values, 9);
  std::string by_nccl = all.of[kRanks - 1];
  for (int rank = kRanks - 2; rank >= 0; --rank) {
    Reduce(values.type, ReduceOp::kSum, reinterpret_cast<std::byte*>(by_nccl.data()),
           reinterpret_cast<const std::byte*>(all.of[static_cast<size_t>(rank)].data()),
           values.count);
  }
  CHECK(RunByNccl(kRanks, nccl, [&](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
          rank.WriteLater(0, all.of[static_cast<size_t>(group.rank())]);
          Good(rank.AllReduce({}, values, ReduceOp::kSum));
          const std::string found = rank.ReadNow(0, values.size_bytes());
          mine.Expect(found == by_nccl, "other bits");
          mine.Expect(!all.Compare(found, ReduceOp::kSum).empty(), "the bits of the host");
        }) == Lines());
}

TEST_CASE("Calls that nobody waits for are done one behind the other", "[nccl_collectives]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(8); ++seed) {
    INFO("seed " << seed);
    const EmulatedNccl nccl(seed, seed % 3 == 0 ? 2 : 0);
    CHECK(RunByNccl(3, nccl, [&](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
            constexpr size_t kCalls = RankOnDevice::kSlots;
            std::vector<ValuesOfRanks> calls;
            for (size_t call = 0; call < kCalls; ++call) {
              // The same places, so that a call that begins too early shows; each rank its own.
              const DeviceValues values = {.offset = static_cast<uint64_t>(group.rank()) * 256,
                                           .count = 50 + call};
              calls.push_back(ExactValuesOfRanks(group.size(), values, seed * 10 + call));
              const std::string& own = calls[call].of[static_cast<size_t>(group.rank())];
              rank.WriteLater(values.offset, own, call);
              Good(rank.AllReduce({.digest = call}, values, ReduceOp::kSum));
              rank.ReadLater(values.offset, own.size(), call);
            }
            rank.Drain();
            for (size_t call = 0; call < kCalls; ++call) {
              const DeviceValues& values = calls[call].values;
              const std::string wrong = calls[call].Compare(
                  rank.BytesRead(values.offset, values.size_bytes(), call), ReduceOp::kSum);
              mine.Expect(wrong.empty(), wrong);
            }
          }) == Lines());
  }
}

TEST_CASE("NCCL copies the values of the root to all ranks", "[nccl_collectives]") {
  const EmulatedNccl nccl(3, 1);
  CHECK(RunByNccl(4, nccl, [](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
          mine.Expect(rank.made()->has_broadcast(), "no broadcast");
          for (int root = 0; root < group.size(); ++root) {
            const DeviceValues values = {.offset = 4, .count = 333, .type = DataType::kFloat64};
            const ValuesOfRanks all(group.size(), values, static_cast<uint64_t>(root) + 1);
            rank.WriteLater(4, all.of[static_cast<size_t>(group.rank())]);
            Good(rank.Broadcast({}, values, root));
            mine.Expect(rank.ReadNow(4, values.size_bytes()) == all.of[static_cast<size_t>(root)],
                        fmt::format("root {}: other bytes", root));
          }
          Good(rank.Broadcast({}, {.count = 0}, 1));
        }) == Lines());
  CHECK(nccl->CallCount("ncclBroadcast") == 16);
}

TEST_CASE("Ranks that make different calls, or decline, enqueue nothing", "[nccl_collectives]") {
  const EmulatedNccl nccl(4);
  CHECK(RunByNccl(2, nccl, [](ranks::Group& group, RankOnDevice& rank, Complaints& mine) {
          const DeviceValues values = {.count = 20};
          const bool is_first = group.rank() == 0;
          rank.WriteLater(0, std::string(80, 'x'));
          const auto declines = [&](const CallTag& tag, const DeviceValues& its,
                                    const Reduction& reduction, const std::string& what) {
            const auto outcome = rank.AllReduce(tag, its, reduction);
            mine.Expect(outcome && *outcome == CallOutcome::kDeclined, what);
            mine.Expect(rank.ReadNow(0, 80) == std::string(80, 'x'), what + ": values changed");
          };
          declines({.is_declined = is_first}, values, ReduceOp::kSum, "a rank declines");
          declines({.digest = is_first ? 1U : 2U}, values, ReduceOp::kSum, "digests");
          declines({}, {.count = is_first ? 20U : 10U}, ReduceOp::kSum, "counts");
          declines({}, values, is_first ? ReduceOp::kMin : ReduceOp::kMax, "reductions");
          declines({}, values, {ReduceOp::kSum, is_first ? 1 : 0.5}, "scales");
          const auto sent = rank.Broadcast({}, values, group.rank());
          mine.Expect(sent && *sent == CallOutcome::kDeclined, "roots");
          ReduceOnce(group, rank, ExactValuesOfRanks(2, values, 1), ReduceOp::kSum, mine);
        }) == Lines());
  CHECK(nccl->CallCount("ncclAllReduce") == 2);
  CHECK(nccl->CallCount("ncclBroadcast") == 0);
}

TEST_CASE("Values outside the arena are refused, and no values are no call", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  CHECK(RunByNccl(2, nccl, [](ranks::Group&, RankOnDevice& rank, Complaints& mine) {
          const uint64_t end = rank.made()->arena().size_bytes;
          mine.Expect(end == 64 << 10, "another arena");
          mine.Expect(rank.made()->ResultOf({.offset = 12}) == rank.made()->arena().begin + 12,
                      "another place");
          const DeviceValues outside = {.offset = end - 4, .count = 2};
          for (const auto& refused :
               {rank.AllReduce({}, outside, ReduceOp::kSum), rank.Broadcast({}, outside, 0)}) {
            mine.Expect(!refused && refused.error().code() == ErrorCode::kInvalidArgument,
                        "outside");
          }
          const auto nothing = rank.AllReduce({}, {.offset = end}, {ReduceOp::kSum, 0.5});
          mine.Expect(nothing && *nothing == CallOutcome::kDone, "no values");
          mine.Expect(rank.made()->Description() ==
                          "reductions by NCCL 2.28.9: 2 ranks with a GPU each; arenas of 65536 "
                          "bytes",
                      rank.made()->Description());
          mine.Expect(!rank.made()->result_state()->is_void(), "void");
        }) == Lines());
  CHECK(nccl->CallCount("ncclAllReduce") == 0);
}

TEST_CASE("A rank that leaves a call which it had begun is an error on all", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  const size_t kept = KeptCount();
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          const auto health = Good(ranks::HostHealth::Create(group, 60s));
          RankOnDevice rank(
              group, nccl.gpu().Open(group.rank()),
              {.health = health.get(), .declined_barrier = 2, .make = ByNccl(*health)});
          Must(rank.Make(group));
          const auto outcome = rank.AllReduce({}, {.count = 5}, ReduceOp::kSum);
          mine.Expect(!outcome, "no error");
          rank.Drain();
          mine.Expect(rank.made()->result_state()->is_void(), "not void");
          Must(group.Barrier());
        }) == Lines());
  CHECK(nccl->CommCount() == 0);
  CHECK(KeptCount() == kept + 2);  // the arenas
}

TEST_CASE("A rank that leaves while another one makes a call is told so", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  const size_t kept = KeptCount();
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          const auto health = Good(ranks::HostHealth::Create(group, 60s));
          RankOnDevice rank(group, nccl.gpu().Open(group.rank()),
                            {.health = health.get(), .make = ByNccl(*health)});
          Must(rank.Make(group));
          if (group.rank() == 0) {
            const Status left = rank.made()->LeaveInPeace();
            mine.Expect(!left && left.error().code() == ErrorCode::kPeerFailed, "it has left");
          } else {
            const auto outcome = rank.AllReduce({}, {.count = 5}, ReduceOp::kSum);
            mine.Expect(outcome && *outcome == CallOutcome::kDeclined, "not declined");
          }
          const auto state = rank.made()->result_state();  // as a handle has it
          mine.Expect(!state->is_void(), "void");
          rank.Drop();
          mine.Expect(state->is_void(), "not void");
          Must(group.Barrier());
          mine.Expect(nccl->CommCount() == 0, "a communicator is left");
          Must(group.Barrier());
        }) == Lines());
  CHECK(nccl->CommCount() == 0);
  CHECK(KeptCount() == kept + 2);  // the arenas
}

// So NCCL's kernels wait for no work of a program.
TEST_CASE("The ranks meet when the work on their streams is done", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          using Side = test::WatchedMeetings::BarrierSide;
          const auto health = Good(ranks::HostHealth::Create(group, 60s));
          RankOnDevice* watched = nullptr;
          RankOnDevice rank(group, nccl.gpu().Open(group.rank()),
                            {.health = health.get(),
                             .watch =
                                 [&](int barrier, Side side) {
                                   if (barrier != 1 || side != Side::kBefore) return;
                                   mine.Expect(Good(watched->stream().IsDone()), "not done");
                                 },
                             .make = ByNccl(*health)});
          watched = &rank;
          Must(rank.Make(group));
          const DeviceValues values = {.count = 40};
          const ValuesOfRanks all = ExactValuesOfRanks(2, values, 1);
          const std::string& own = all.of[static_cast<size_t>(group.rank())];
          // More copies than the stand-in makes while it is asked once by each rank.
          for (int i = 0; i < 20; ++i) rank.WriteLater(0, own);
          Good(rank.AllReduce({}, values, ReduceOp::kSum));
          const std::string wrong = all.Compare(rank.ReadNow(0, own.size()), ReduceOp::kSum);
          mine.Expect(wrong.empty(), wrong);
          rank.Leave();
        }) == Lines());
}

TEST_CASE("NCCL is called with the context of the GPU, whichever is current",
          "[nccl_collectives]") {
  const EmulatedNccl nccl;
  const auto group = ranks::SoloGroup();
  ranks::SoloHealth health;
  RankOnDevice rank(*group, nccl.gpu().Open(1), {.make = ByNccl(health)});
  const device::DriverTable& driver = nccl.gpu().table();
  device::ContextHandle other = nullptr;
  REQUIRE(driver.DevicePrimaryCtxRetain(&other, 0) == 0);
  REQUIRE(driver.CtxSetCurrent(other) == 0);
  Must(rank.Make(*group));
  CHECK(Good(rank.AllReduce({}, {.count = 4}, ReduceOp::kSum)) == CallOutcome::kDone);
  device::ContextHandle current = nullptr;
  CHECK(driver.CtxGetCurrent(&current) == 0);
  CHECK(current == other);
  rank.Leave();
  CHECK(driver.DevicePrimaryCtxRelease(0) == 0);
}

TEST_CASE("A child of fork() calls no NCCL", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  const auto group = ranks::SoloGroup();
  ranks::SoloHealth health;
  RankOnDevice rank(*group, nccl.gpu().Open(0), {.make = ByNccl(health)});
  Must(rank.Make(*group));
  test::CheckInChild([&] {
    const auto refused = rank.AllReduce({}, {.count = 4}, ReduceOp::kSum);
    CHILD_CHECK(!refused && refused.error().code() == ErrorCode::kUnsupported);
    CHILD_CHECK(!rank.made()->Check());
    rank.Drop();
    CHILD_CHECK(nccl->CallCount("ncclCommAbort") == 0);
    CHILD_CHECK(nccl->CallCount("ncclCommGetAsyncError") == 0);
    return test::Verdict::kRight;
  });
  rank.Leave();
  CHECK(nccl->CommCount() == 0);
}

// --- Refusals ----------------------------------------------------------------------------------

struct Refused {
  ErrorCode code;
  std::string message;  // on rank 1
};

// Makes two ranks, and expects that they fail. `others` is the message on rank 0; "": that of rank
// 1.
void CheckRefused(const EmulatedNccl& nccl,
                  const std::function<test::RankSetup(int rank)>& setup_of,
                  const std::function<int(int rank)>& device_of, const Refused& refused,
                  const std::string& others = "") {
  CHECK(RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
          const auto health = Good(ranks::HostHealth::Create(group, 60s));
          test::RankSetup setup = setup_of(group.rank());
          setup.health = health.get();
          if (!setup.make) setup.make = ByNccl(*health);
          RankOnDevice rank(group, nccl.gpu().Open(device_of(group.rank())), setup);
          const Status made = rank.Make(group);
          if (made) return mine.Expect(false, "no error");
          const bool is_other = group.rank() == 0 && !others.empty();
          const ErrorCode code = is_other ? ErrorCode::kPeerFailed : refused.code;
          mine.Expect(made.error().code() == code, "another code");
          mine.Expect(made.error().message() == (is_other ? others : refused.message),
                      made.error().message());
        }) == Lines());
  CHECK(nccl->CommCount() == 0);
  CHECK(nccl.gpu()->Objects().total() == 0);
}

TEST_CASE("Two ranks on one GPU are refused by name on all ranks", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  const std::string uuid = nccl.gpu().Open(2)->facts().uuid;
  CheckRefused(
      nccl, [](int) { return test::RankSetup(); }, [](int) { return 2; },
      {ErrorCode::kUnsupported, "the ranks cannot use NCCL: ranks 0 and 1 share " + uuid +
                                    ", and NCCL needs a GPU for each rank"});
  CHECK(nccl->CallCount("ncclCommInitRankConfig") == 0);
}

TEST_CASE("A rank without kernels for its GPU is refused by name on all ranks",
          "[nccl_collectives]") {
  const EmulatedNccl nccl;
  CheckRefused(
      nccl, [](int rank) { return test::RankSetup{.has_kernels = rank == 0}; },
      [](int rank) { return rank; },
      {ErrorCode::kUnsupported, "the ranks cannot use NCCL: rank 1 has no kernels for its GPU"});
}

TEST_CASE("A rank whose NCCL is too old fails all ranks", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  static ranks::SoloHealth unused;
  const std::string message = LoadNccl(LMDBIO_TEST_OLD_NCCL).error().message();
  CheckRefused(
      nccl,
      [](int rank) {
        return test::RankSetup{.make =
                                   ByNccl(unused, rank == 1 ? LMDBIO_TEST_OLD_NCCL : kNcclLibrary)};
      },
      [](int rank) { return rank; }, {ErrorCode::kUnsupported, message}, "rank 1: " + message);
}

TEST_CASE("A rank without NCCL fails all ranks", "[nccl_collectives]") {
  const EmulatedNccl nccl;
  static ranks::SoloHealth unused;
  constexpr const char* kNone = "libno-such-nccl.so.2";
  const std::string message = LoadNccl(kNone).error().message();
  CheckRefused(
      nccl,
      [](int rank) {
        return test::RankSetup{.make = ByNccl(unused, rank == 1 ? kNone : kNcclLibrary)};
      },
      [](int rank) { return rank; }, {ErrorCode::kNotFound, message}, "rank 1: " + message);
}

}  // namespace
}  // namespace lmdbio::sync
