// Goal: in each order of streams the ranks get the reduction, whatever order their GPUs take.
// Method: ranks are processes that share the devices of one file. Values are packed by work on the
// stream, and places of the arena are used again at once, so a wait that is missing gives wrong
// bytes. Oracle: the arithmetic of number_oracle.h. LMDBIO_TEST_SEEDS=N runs more jobs.
#include <array>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/rank_on_device.h"
#include "tests/sync/over_device/ranks_on_file.h"

namespace lmdbio::sync {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::kOrders;
using test::Must;
using test::Random;
using test::RankOnDevice;
using test::RanksOnFile;
using test::ValuesOfRanks;

constexpr uint64_t kArenaBytes = 4096;

// A call of all ranks, and its values.
struct DrawnCall {
  DrawnCall(int rank_count, Random& random)
      : reduction(std::array{ReduceOp::kSum, ReduceOp::kMax}[random.Below(2)],
                  random.Below(2) == 0 ? 1.0 : -0.5),
        all(rank_count, Draw(random), random.Next()),
        decliner(random.Below(8) == 0 ? DrawRank(rank_count, random) : -1),
        root(random.Below(3) == 0 ? DrawRank(rank_count, random) : -1) {}

  static int DrawRank(int rank_count, Random& random) {
    return static_cast<int>(random.Below(static_cast<uint64_t>(rank_count)));
  }

  static DeviceValues Draw(Random& random) {
    constexpr std::array kTypes{DataType::kFloat32, DataType::kFloat16, DataType::kInt64};
    const DataType type = kTypes[random.Below(kTypes.size())];
    return {.offset = random.Below(2048),
            .count = random.Below(2048) / ElementBytes(type),
            .type = type};
  }

  Reduction reduction;
  ValuesOfRanks all;
  int decliner;  // -1: none
  int root;      // of a broadcast; -1: a reduction
};

std::string CompareCall(const DrawnCall& call, const std::string& mine, const std::string& found) {
  if (call.decliner >= 0) return found == mine ? "" : "a declined call has changed the arena";
  if (call.root < 0) return call.all.Compare(found, call.reduction);
  return found == call.all.of[static_cast<size_t>(call.root)] ? "" : "not the bytes of the root";
}

// Several calls are enqueued one after the other, and then compared.
std::string RunBatch(RankOnDevice& rank, const ranks::Group& group, Random& random) {
  const auto self = static_cast<size_t>(group.rank());
  std::vector<DrawnCall> calls;
  const uint64_t count = random.Between(1, RankOnDevice::kSlots);
  for (size_t i = 0; i < count; ++i) {
    DrawnCall& call = calls.emplace_back(group.size(), random);
    // Ranks may differ in it.
    if ((i + self) % 2 == 0) call.all.values.result = ResultPlace::kAnywhere;
    const std::string& mine = call.all.of[self];
    rank.WriteLater(call.all.values.offset, mine, i);
    const CallTag tag = {.digest = i, .is_declined = call.decliner == group.rank()};
    const auto outcome = call.root < 0 ? rank.AllReduce(tag, call.all.values, call.reduction)
                                       : rank.Broadcast(tag, call.all.values, call.root);
    if (!outcome) return outcome.error().message();
    if ((*outcome == CallOutcome::kDeclined) != (call.decliner >= 0)) return "another outcome";
    if (call.root < 0 && call.decliner < 0) {
      rank.ReadResultLater(call.all.values, mine.size(), i);
    } else {
      rank.ReadLater(call.all.values.offset, mine.size(), i);
    }
  }
  Must(rank.stream().Synchronize());
  for (size_t i = 0; i < count; ++i) {
    const DrawnCall& call = calls[i];
    const std::string& mine = call.all.of[self];
    const std::string found = rank.BytesRead(call.all.values.offset, mine.size(), i);
    const std::string wrong = CompareCall(call, mine, found);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// A job of 1 to 8 ranks on 1 or 2 GPUs, which reduce no, about half of the values or all in one
// shot. Its seed decides.
struct OrdersJob {
  explicit OrdersJob(uint64_t job_seed) : seed(job_seed) {}

  uint64_t seed;
  OrderKind order = kOrders[seed % kOrders.size()];
  Random random{seed};
  int rank_count = static_cast<int>(random.Between(1, 8));
  int gpu_count = static_cast<int>(random.Between(1, 2));
  uint64_t one_shot_bytes = std::array<uint64_t, 3>{0, 1024, kArenaBytes}[random.Below(3)];
  uint64_t batch_count = 60 / static_cast<uint64_t>(rank_count);
};

std::string RunRank(ranks::Group& group, OrdersJob job) {
  const EmulatedGpu gpu(job.seed * 100 + static_cast<uint64_t>(group.rank()));
  {
    RankOnDevice rank(group, gpu.Open(group.rank() % job.gpu_count),
                      {.options = {.arena_bytes = kArenaBytes,
                                   .order = job.order,
                                   .one_shot_bytes = job.one_shot_bytes}});
    Must(rank.Make(group));
    if (!rank.notes().empty()) return rank.notes().front();
    for (uint64_t batch = 0; batch < job.batch_count; ++batch) {
      const std::string wrong = RunBatch(rank, group, job.random);
      if (!wrong.empty()) return fmt::format("batch {}: {}", batch, wrong);
    }
    rank.Leave();
    // Objects of others are closed when all have left, and the own ones are there.
    if (gpu->Objects().imports != 0) return "arenas of others are mapped";
    const uint64_t own_events = std::array{1U, 2U, 0U}[static_cast<size_t>(job.order)];
    if (gpu->Objects().events != own_events) return "events of others are open";
  }
  return gpu->Objects().total() == 0 ? "" : "objects are left";
}

TEST_CASE("Ranks that are processes reduce and broadcast in each order of streams", "[orders]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(30); ++seed) {
    const OrdersJob job(seed);
    CAPTURE(seed, NameOf(job.order), job.rank_count, job.gpu_count, job.one_shot_bytes);
    RanksOnFile ranks(job.rank_count, [&](ranks::Group& group) { return RunRank(group, job); });
    CHECK(ranks.Reports() == "");
  }
}

// --- Steady state ------------------------------------------------------------------------------

struct SteadyJob {
  OrderKind order;
  int gpu_count;
  size_t value_count;
  uint64_t one_shot_bytes = 0;
};

// The calls of the driver for a reduction of three ranks, beside looks.
using CallNumbers = std::map<std::string, uint64_t>;

CallNumbers ExpectedCalls(const SteadyJob& job, int rank) {
  const bool is_leader = rank < job.gpu_count;
  // The first leader takes the first cache line.
  const bool is_one_shot = job.value_count * sizeof(float) <= job.one_shot_bytes;
  const bool has_part = is_leader && (rank == 0 || job.value_count > 32 || is_one_shot);
  const auto other_leaders = static_cast<uint64_t>(job.gpu_count - (is_leader ? 1 : 0));
  CallNumbers calls;
  const bool has_marks = job.order == OrderKind::kMark;
  calls[has_marks ? "cuStreamWriteValue64" : "cuEventRecord"] = is_leader ? 2 : 1;
  if (has_part) calls["cuLaunchKernel"] = 1;
  // The result comes to the place of the values.
  if (is_one_shot) calls["cuMemcpyDtoDAsync"] = 1;
  if (has_marks) calls["cuStreamBatchMemOp"] = (has_part ? 1 : 0) + (other_leaders > 0 ? 1 : 0);
  if (job.order == OrderKind::kEvent) {
    calls["cuStreamWaitEvent"] = (has_part ? 2 : 0) + other_leaders;
  }
  return calls;
}

std::string CheckSteadyCalls(ranks::Group& group, const SteadyJob& job) {
  constexpr uint64_t kCalls = 50;
  const EmulatedGpu gpu(static_cast<uint64_t>(group.rank()));
  RankOnDevice rank(
      group, gpu.Open(group.rank() % job.gpu_count),
      {.options = {
           .arena_bytes = kArenaBytes, .order = job.order, .one_shot_bytes = job.one_shot_bytes}});
  Must(rank.Make(group));
  const auto reduce = [&] {
    Good(rank.AllReduce({}, {.count = job.value_count}, ReduceOp::kSum));
    rank.Drain();
  };
  reduce();
  const test::CallCounts before = test::CountCalls();
  for (uint64_t i = 0; i < kCalls; ++i) reduce();
  const test::CallCounts after = test::CountCalls();
  const CallNumbers expected = ExpectedCalls(job, group.rank());
  std::string wrong;
  for (const auto& [name, count] : after) {
    // Looks, and the context of the thread.
    if (name == "cuStreamQuery" || name == "cuEventQuery" || name.starts_with("cuCtx")) continue;
    const auto found = expected.find(name);
    const uint64_t wanted = found != expected.end() ? kCalls * found->second : 0;
    const uint64_t made = count - before.at(name);
    if (made != wanted) wrong += fmt::format("{} {}, not {}; ", made, name, wanted);
  }
  rank.Leave();
  return wrong;
}

TEST_CASE("A reduction makes no call that waits for the device", "[orders]") {
  for (const OrderKind order : kOrders) {
    for (const SteadyJob& job : {SteadyJob{order, 1, 500}, SteadyJob{order, 2, 500},
                                 SteadyJob{order, 2, 1}, SteadyJob{order, 2, 1, 1024}}) {
      CAPTURE(NameOf(order), job.gpu_count, job.value_count, job.one_shot_bytes);
      RanksOnFile ranks(3, [&](ranks::Group& group) { return CheckSteadyCalls(group, job); });
      CHECK(ranks.Reports() == "");
    }
  }
}

}  // namespace
}  // namespace lmdbio::sync
