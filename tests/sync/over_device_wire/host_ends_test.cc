// Goal: ranks of several hosts reduce in each order of streams; if one of them is killed or stopped
// at any step, the others of all hosts get its name within 5 s. Their GPUs work, and their streams
// are done, but for those that wait for an event of a rank that was killed. Method: ranks are
// processes, neighbours of which count as a host. LMDBIO_TEST_SEEDS=N runs more jobs that end well.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/health/job_health.h"
#include "tests/ranks/wide.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/end_jobs.h"
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_device_wire/rank_on_hosts.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::EmulatedGpu;
using test::EndClock;
using test::EndPlan;
using test::FailureReport;
using test::Good;
using test::GpuWorks;
using test::kKillInCall;
using test::kOrders;
using test::kSilenceLimit;
using test::Must;
using test::RankOnHosts;
using test::RanksOnFile;
using test::WatchedMeetings;
using test::WrongFailure;
using Side = WatchedMeetings::BarrierSide;

constexpr std::array kAlgorithms{WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                 WireAlgorithm::kHalving, WireAlgorithm::kDirect};

// A job of 2 to 4 hosts with 1 to 3 ranks each, but 8 at most, on 1 or 2 GPUs. Its seed decides.
struct DrawnHosts {
  explicit DrawnHosts(uint64_t job_seed) : seed(job_seed) {}

  uint64_t seed;
  OrderKind order = kOrders[seed % kOrders.size()];
  test::Random random{seed};
  int host_count = static_cast<int>(random.Between(2, 4));
  int ranks_per_host = std::min(static_cast<int>(random.Between(1, 3)), 8 / host_count);
  int gpu_count = static_cast<int>(random.Between(1, 2));
  WireAlgorithm algorithm = kAlgorithms[random.Below(kAlgorithms.size())];
};

std::string RunOnHosts(ranks::Group& group, DrawnHosts job) {
  const EmulatedGpu gpu(job.seed * 100 + static_cast<uint64_t>(group.rank()));
  RankOnHosts rank(group, gpu.Open(group.rank() % job.gpu_count),
                   {.order = job.order, .algorithm = job.algorithm});
  Must(rank.Make(group));
  for (const std::string& note : rank.notes()) return note;
  for (int call = 0; call < 20; ++call) {
    const DeviceValues values = {.offset = job.random.Below(100) * 4,
                                 .count = job.random.Below(900)};
    const std::string wrong =
        ReduceOnHosts(rank, group, values, {ReduceOp::kSum, 0.25}, job.random.Next());
    if (!wrong.empty()) return fmt::format("call {}: {}", call, wrong);
  }
  rank.Leave();
  return "";
}

TEST_CASE("Processes of several hosts reduce in each order of streams", "[host_ends]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(12); ++seed) {
    const DrawnHosts job(seed);
    CAPTURE(seed, NameOf(job.order), job.host_count, job.ranks_per_host, job.gpu_count);
    CAPTURE(NameOf(job.algorithm));
    RanksOnFile ranks(
        job.host_count * job.ranks_per_host,
        [&](ranks::Group& group) { return RunOnHosts(group, job); }, job.ranks_per_host);
    CHECK(ranks.Reports() == "");
  }
}

// --- Ends --------------------------------------------------------------------------------------

constexpr int kRanks = 4;
constexpr int kRanksPerHost = 2;
constexpr DeviceValues kValues = {.offset = 64, .count = 300};

// The place at which the victim ends: in a call of its driver, or beside a meeting.
struct HostEnding {
  OrderKind order;
  int victim;
  std::string call = "";  // of the driver; "": a meeting
  uint64_t nth = 1;       // call or meeting of a reduction
  Side side = Side::kBefore;
  int signal = SIGKILL;  // beside a meeting

  // In the order `event` the streams of these ranks may wait for the victim for ever.
  bool StreamsMayWait(int rank) const {
    return order == OrderKind::kEvent && rank / kRanksPerHost == victim / kRanksPerHost;
  }
};

std::string RunUntilEnd(ranks::Group& group, const HostEnding& ending, EndClock& clock) {
  const EmulatedGpu gpu(static_cast<uint64_t>(group.rank()) + 1);
  const auto health = Good(ranks::JobHealth::Create(group, kSilenceLimit));
  uint64_t meetings_left = 0;  // 0: it does not end at one
  const auto watch = [&](int, Side side) {
    if (meetings_left == 0 || side != ending.side || --meetings_left > 0) return;
    clock.NoteEnd();
    ::raise(ending.signal);
  };
  RankOnHosts rank(group, gpu.Open(),
                   {.order = ending.order, .health = health.get(), .watch = watch});
  Must(rank.Make(group));
  for (const std::string& note : rank.notes()) return note;
  const std::string wrong = ReduceOnHosts(rank, group, kValues, ReduceOp::kSum, 1);
  if (!wrong.empty()) return wrong;
  Must(group.Barrier());
  if (group.rank() == ending.victim) {
    clock.NoteEnd();
    if (ending.call.empty()) meetings_left = ending.nth;
    if (!ending.call.empty()) gpu->FailCall(ending.call.c_str(), ending.nth, kKillInCall);
  }
  for (int call = 0; call < 20; ++call) {
    const auto outcome = rank.ReduceLater(kValues, std::string(1200, '\0'), ReduceOp::kSum);
    if (outcome) continue;
    const Error& error = outcome.error();
    const double seconds = clock.SecondsSinceEnd();
    std::string found = WrongFailure(error, group.rank(), ending.victim, seconds);
    if (!ending.StreamsMayWait(group.rank()) && !rank.Drain(5000ms)) {
      found += "the stream is not done; ";
    }
    if (!GpuWorks(gpu, rank.gpu())) found += "the GPU does not work; ";
    rank.Drop();
    return FailureReport(found, seconds, error);
  }
  return "no call fails";
}

void CheckAllOnHosts(const std::vector<HostEnding>& endings) {
  std::vector<EndPlan> plans;
  for (const HostEnding& ending : endings) {
    plans.push_back({.text = fmt::format("order {}, victim {}, call '{}' {}, side {}, signal {}",
                                         NameOf(ending.order), ending.victim, ending.call,
                                         ending.nth, static_cast<int>(ending.side), ending.signal),
                     .rank_count = kRanks,
                     .victim = ending.victim,
                     .signal = ending.signal,
                     .run = [ending](ranks::Group& group,
                                     EndClock& clock) { return RunUntilEnd(group, ending, clock); },
                     .ranks_per_host = kRanksPerHost});
  }
  test::CheckEndJobs(plans, 4);
}

TEST_CASE("A rank that is killed at a step is named on all hosts, and the streams are done",
          "[host_ends]") {
  std::vector<HostEnding> endings;
  for (const OrderKind order : kOrders) {
    // Half of them, with each combination of three of order, victim, meeting and side.
    for (const int victim : {0, 1, 2}) {
      for (const uint64_t meeting : {1, 2, 3}) {
        const auto sum = static_cast<uint64_t>(order) + static_cast<uint64_t>(victim) + meeting;
        for (const Side side : {Side::kBefore, Side::kAfter}) {
          const bool is_taken = (sum % 2 == 0) == (side == Side::kBefore);
          if (test::IsWide() || is_taken) endings.push_back({order, victim, "", meeting, side});
        }
      }
    }
    // Roots, within the call between the hosts, and where they copy its result.
    for (const int victim : {0, 2}) {
      endings.push_back({order, victim, "cuLaunchKernel", 2});
      endings.push_back({order, victim, "cuMemcpyDtoHAsync", 1});
      endings.push_back({order, victim, "cuMemcpyDtoDAsync", 1});
    }
  }
  CheckAllOnHosts(endings);
}

TEST_CASE("A rank that is stopped at a step is named on all hosts, and hears it when it goes on",
          "[host_ends]") {
  std::vector<HostEnding> endings;
  for (const OrderKind order : kOrders) {
    endings.push_back({order, 0, "", 2, Side::kAfter, SIGSTOP});
    endings.push_back({order, 1, "", 1, Side::kBefore, SIGSTOP});
    endings.push_back({order, 2, "", 3, Side::kBefore, SIGSTOP});
  }
  CheckAllOnHosts(endings);
}

}  // namespace
}  // namespace lmdbio::sync
