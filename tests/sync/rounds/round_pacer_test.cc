// Goal: each pacing sleeps and waits as its source says. All ranks run in virtual time, so the
// times are exact.
//
// Source: dissertation 6.2.2 and 6.2.4 ("cycle"), 6.3.1 ("gs"), 6.3.2 ("nbcs").
#include "lmdbio/sync/rounds/round_pacer.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/control/coordinator.h"
#include "tests/support/catch.h"
#include "tests/sync/rounds/virtual_ranks.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using test::RunVirtualJob;
using test::VirtualRank;
using test::VirtualSpan;

using VirtualUse = VirtualSpan::VirtualUse;
using Ranks = std::vector<std::unique_ptr<VirtualRank>>;

constexpr auto kCycle = microseconds(1000);
constexpr auto kExchange = microseconds(100);

// Which rank oversleeps, in which cycle, and by how much.
struct Oversleep {
  int rank = 1;
  int cycle = -1;  // -1: in none
  microseconds by{0};
};

// The times at which a rank began its cycles, in the job that the ranks have run.
struct CycleTimes {
  std::vector<std::vector<microseconds>> begins;  // [ranks][cycles]

  microseconds late(int cycle) const {
    return begins[1][static_cast<size_t>(cycle)] - begins[0][static_cast<size_t>(cycle)];
  }
};

// Runs cycles of two ranks without requests.
Ranks RunCycles(const PacingOptions& options, int cycle_count, const Oversleep& oversleep,
                CycleTimes& times, microseconds exchange_time = kExchange) {
  times.begins.assign(2, {});
  return RunVirtualJob({.exchange_time = exchange_time}, [&](VirtualRank& rank) {
    const auto coordinator = std::move(*Coordinator::Create({}, rank.ranks()));
    RoundPacer pacer(
        rank, *coordinator, options, [] { return Status(); }, rank);
    for (int cycle = 0; cycle < cycle_count; ++cycle) {
      if (cycle == oversleep.cycle && rank.ranks().rank == oversleep.rank) {
        rank.OversleepOnce(oversleep.by);
      }
      LMDBIO_CHECK(pacer.SleepToNextCycle().has_value());
      times.begins[static_cast<size_t>(rank.ranks().rank)].push_back(rank.elapsed());
      LMDBIO_CHECK(pacer.Run().has_value());
    }
  });
}

TEST_CASE("A cycle sleeps for the cycle time less the last round", "[sync][rounds]") {
  CycleTimes times;
  const Ranks ranks = RunCycles({.pacing = "cycle", .cycle_time = kCycle}, 4, {}, times);
  REQUIRE(times.begins[0] == std::vector<microseconds>{1000us, 2000us, 3000us, 4000us});
  REQUIRE(times.begins[1] == times.begins[0]);
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kSleep) == 1000us + 3 * 900us);
}

TEST_CASE("A cycle does not sleep after a round that took longer", "[sync][rounds]") {
  CycleTimes times;
  const Ranks ranks = RunCycles({.pacing = "cycle", .cycle_time = kCycle}, 4, {}, times, 1500us);
  REQUIRE(times.begins[0] == std::vector<microseconds>{1000us, 2500us, 4000us, 5500us});
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kSleep) == 1000us);
}

TEST_CASE("A cycle time of 0 never sleeps", "[sync][rounds]") {
  const std::string pacing = GENERATE("cycle", "gs");
  CycleTimes times;
  const Ranks ranks = RunCycles({.pacing = pacing, .cycle_time = 0us}, 3, {}, times, 0us);
  REQUIRE(times.begins[0] == std::vector<microseconds>{0us, 0us, 0us});
  REQUIRE(ranks[0]->exchange_count() == 3);  // without one to agree on a sleep
}

// Rank 0 reaches the exchange first, waits for rank 1, and then sleeps the less for it. So it is
// early again (dissertation 6.2.4).
TEST_CASE("A rank that oversleeps once stays late with cycles", "[sync][rounds]") {
  CycleTimes times;
  const Ranks ranks =
      RunCycles({.pacing = "cycle", .cycle_time = kCycle}, 20, {.cycle = 2, .by = 400us}, times);
  REQUIRE(times.late(1) == 0us);
  for (int cycle = 2; cycle < 20; ++cycle) REQUIRE(times.late(cycle) == 400us);
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kWait) == 20 * kExchange + 18 * 400us);
  REQUIRE(ranks[1]->TotalOf(VirtualUse::kWait) == 20 * kExchange);
}

TEST_CASE("With gs a rank that overslept is on time in the next cycle", "[sync][rounds]") {
  CycleTimes times;
  RunCycles({.pacing = "gs", .cycle_time = kCycle, .gs_cycles = 1}, 20, {.cycle = 2, .by = 400us},
            times);
  REQUIRE(times.late(2) == 400us);
  for (int cycle = 3; cycle < 20; ++cycle) REQUIRE(times.late(cycle) == 0us);
}

// The least of all sleeps is that of rank 0, which has waited for rank 1. It travels in units of
// 1/64 of the cycle time, rounded down.
TEST_CASE("With gs all ranks sleep for the least of all sleeps, each N-th cycle",
          "[sync][rounds]") {
  const auto period = GENERATE(2, 3, 5);
  constexpr int kCycles = 16;
  constexpr microseconds kLate(410);  // no sleep is a multiple of a coarser unit
  // The rank is late from the cycle behind an agreement until the next one.
  const int late_from = period;
  CycleTimes times;
  const Ranks ranks =
      RunCycles({.pacing = "gs", .cycle_time = kCycle, .gs_cycles = static_cast<uint32_t>(period)},
                kCycles, {.cycle = late_from, .by = kLate}, times);
  const int agreed = 2 * period - 1;  // the sleep before this cycle was agreed on
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    REQUIRE(times.late(cycle) == (cycle >= late_from && cycle < agreed ? kLate : 0us));
  }
  REQUIRE(ranks[0]->exchange_count() == kCycles + kCycles / period);

  // Without the agreement rank 0 would sleep for the cycle less its last round.
  const auto began = times.begins[0][static_cast<size_t>(agreed) - 1];
  const microseconds round = kLate + kExchange;
  const microseconds own = kCycle - round;
  const microseconds slept = times.begins[0][static_cast<size_t>(agreed)] - began - round -
                             kExchange;  // one exchange more: the agreement
  REQUIRE(slept <= own);
  REQUIRE(slept > own - kCycle / 64);
}

// A late rank, and what the other one does meanwhile.
Ranks RunLateRound(const PacingOptions& options, microseconds late, bool keeps_core,
                   const std::function<Status()>& on_nap) {
  return RunVirtualJob({.exchange_time = 0us, .keeps_core = keeps_core}, [&](VirtualRank& rank) {
    const auto coordinator = std::move(*Coordinator::Create({}, rank.ranks()));
    const bool is_first = rank.ranks().rank == 0;
    RoundPacer pacer(
        rank, *coordinator, options, [&] { return is_first ? on_nap() : Status(); }, rank);
    if (!is_first) rank.Compute(late);
    static_cast<void>(pacer.Run());
  });
}

Status DoNothing() { return {}; }

TEST_CASE("With nbcs a rank tests and sleeps, and never waits with the core", "[sync][rounds]") {
  const Ranks ranks = RunLateRound({.pacing = "nbcs", .cycle_time = kCycle}, 5ms, true, DoNothing);
  REQUIRE(ranks[0]->wait_count() == 0);
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kWait) == 0us);
  const auto sleeps = static_cast<int>(ranks[0]->spans().size());
  REQUIRE(ranks[0]->test_count() == sleeps + 1);
  REQUIRE(sleeps >= 5);    // short against the wait, so that the reply is seen soon
  REQUIRE(sleeps <= 500);  // and long against a test
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kSleep) >= 5ms);
}

TEST_CASE("With cycle and gs a rank waits as the transport does, and tests nothing",
          "[sync][rounds]") {
  const std::string pacing = GENERATE("cycle", "gs");
  const Ranks ranks = RunLateRound({.pacing = pacing, .cycle_time = kCycle}, 5ms, true, DoNothing);
  REQUIRE(ranks[0]->test_count() == 0);
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kWait) == 5ms);
  REQUIRE(ranks[0]->TotalOf(VirtualUse::kSleep) == 0us);
}

TEST_CASE("With event a rank tests and sleeps only if the transport would keep the core",
          "[sync][rounds]") {
  const bool keeps_core = GENERATE(false, true);
  const Ranks ranks = RunLateRound({.pacing = "event"}, 5ms, keeps_core, DoNothing);
  REQUIRE((ranks[0]->test_count() > 0) == keeps_core);
  REQUIRE((ranks[0]->wait_count() > 0) == !keeps_core);
}

TEST_CASE("A round that waits looks at the health, and ends with its error", "[sync][rounds]") {
  const std::string pacing = GENERATE("cycle", "nbcs");
  int nap_count = 0;
  RunLateRound({.pacing = pacing, .cycle_time = kCycle}, 1050ms, true, [&] {
    ++nap_count;
    return Status();
  });
  REQUIRE(nap_count == 10);

  const Ranks ranks = RunLateRound({.pacing = pacing, .cycle_time = kCycle}, 1050ms, true,
                                   [] { return Fail(ErrorCode::kPeerFailed, "rank 1 has ended"); });
  const microseconds waited = ranks[0]->TotalOf(VirtualUse::kWait) +  // of one kind or the other
                              ranks[0]->TotalOf(VirtualUse::kSleep);
  REQUIRE(waited >= ranks::kHealthNap);
  REQUIRE(waited < 2 * ranks::kHealthNap);
}

}  // namespace
}  // namespace lmdbio::sync
