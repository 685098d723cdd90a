// Goal: calls before a plan make its model, calls of the plan are compared with it, and after a
// plan in another network the trial no longer counts as it is.
#include "lmdbio/sync/graph/plan_times.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using Samples = std::vector<TransferSample>;

constexpr int64_t kPlanLengthNs = 10'000;
const Samples kPlanTrial = {{1000, 1000}, {4000, 4000}, {16'000, 16'000}};

// A plan whose forecast is an iteration of 10,000 ns, and one of 30,000 ns in the order of arrival,
// in a network that moves a byte in 1 ns.
TimedPlan PlanWithForecast(uint64_t epoch) {
  return {
      .plan = Plan::FromOrder({{.tensor = test::TensorOf("a", 100)}}, {}, epoch),
      .forecast =
          PlanForecast{.iteration_ns = kPlanLengthNs, .arrival_ns = 30'000, .computing_ns = 8'000},
      .model = *TransferModel::FromSamples(kPlanTrial)};
}

int64_t g_last_end_ns = 0;  // of the calls of all tests; no rests lie between them

void Transfer(PlanTimes& times, const TransferSample& transfer) {
  g_last_end_ns += transfer.ns;
  times.OnTransfer(transfer, g_last_end_ns, TransferStart::kMeets);
}

// An iteration of the plan with one call; `now_ns` advances.
bool IsWrongAfter(PlanTimes& times, int64_t& now_ns, int64_t length_ns, int64_t call_ns) {
  Transfer(times, {1000, call_ns});
  now_ns += length_ns;
  return times.OnIterationEnd(now_ns);
}

// The iterations until the plan is wrong, without the first one. The plan is abandoned then.
int CountUntilWrong(PlanTimes& times, int64_t length_ns, int64_t call_ns) {
  int64_t now_ns = 5;
  int count = 0;
  while (!IsWrongAfter(times, now_ns, length_ns, call_ns)) REQUIRE(++count < 100'000);
  REQUIRE(times.OnAbandoned());
  return count;
}

void LogThree(PlanTimes& times, uint64_t bytes, int64_t ns) {
  for (int i = 0; i < 3; ++i) Transfer(times, {bytes, ns});
}

TEST_CASE("In a slower network the trial is corrected by the calls of rounds", "[plan_times]") {
  PlanTimes times(kPlanTrial);
  LogThree(times, 4000, 4100);
  CHECK(times.Samples() == Samples{{1000, 1000}, {4000, 4100}, {16'000, 16'000}});
  const Samples before = times.Samples();
  times.OnPlan(PlanWithForecast(1));
  LogThree(times, 16'000, 99'000);
  CHECK(times.Samples() == before);  // calls of plans are not logged
  CHECK(CountUntilWrong(times, 20'000, 5'000) == 3);
  CHECK(times.Samples() == kPlanTrial);  // calls before the plan say nothing now
  LogThree(times, 4000, 12'000);
  CHECK(times.Samples() == Samples{{1000, 3000}, {4000, 12'000}, {16'000, 48'000}});
}

TEST_CASE("The spread of the program's iterations is known to the watch", "[plan_times]") {
  TimedPlan plan = PlanWithForecast(1);
  plan.forecast->spread_ns = 1000;
  PlanTimes times(kPlanTrial);
  times.OnPlan(plan);
  int64_t now_ns = 5;
  for (int i = 0; i < 10; ++i) CHECK_FALSE(IsWrongAfter(times, now_ns, 11'000, 5'000));
  CHECK_FALSE(IsWrongAfter(times, now_ns, 11'221, 5'000));
  CHECK_FALSE(IsWrongAfter(times, now_ns, 11'221, 5'000));
  CHECK(IsWrongAfter(times, now_ns, 11'221, 5'000));
}

TEST_CASE("In a faster network the trial is corrected, too", "[plan_times]") {
  PlanTimes times(kPlanTrial);
  times.OnPlan(PlanWithForecast(1));
  CHECK(CountUntilWrong(times, 9'000, 100) == 3);
  LogThree(times, 4000, 400);
  CHECK(times.Samples() == Samples{{1000, 100}, {4000, 400}, {16'000, 1600}});
}

TEST_CASE("A program that computes longer leaves the trial as it is", "[plan_times]") {
  PlanTimes times(kPlanTrial);
  times.OnPlan(PlanWithForecast(1));
  CHECK(CountUntilWrong(times, 20'000, 1'000) == 3);
  LogThree(times, 4000, 12'000);
  CHECK(times.Samples() == Samples{{1000, 1000}, {4000, 12'000}, {16'000, 16'000}});
}

TEST_CASE("Each wrong plan doubles the iterations that the next one must be wrong",
          "[plan_times]") {
  PlanTimes times(kPlanTrial);
  int count = 3;
  for (uint64_t epoch = 1; epoch <= PlanTimes::kDoublingsMax + 3; ++epoch) {
    times.OnPlan(PlanWithForecast(epoch));
    CHECK(CountUntilWrong(times, 20'000, 1'000) == count);
    if (epoch <= PlanTimes::kDoublingsMax) count *= 2;
  }
  // A plan that is abandoned for another reason doubles nothing.
  PlanTimes others(kPlanTrial);
  others.OnPlan(PlanWithForecast(1));
  CHECK_FALSE(others.OnAbandoned());
  others.OnPlan(PlanWithForecast(2));
  CHECK(CountUntilWrong(others, 20'000, 1'000) == 3);
}

// An iteration in the order of arrival is predicted to take 12,000 ns.
TimedPlan OrderedPlan(uint64_t epoch) {
  TimedPlan plan = PlanWithForecast(epoch);
  plan.forecast->arrival_ns = 12'000;
  return plan;
}

TEST_CASE("After two plans that gained nothing the next one is by arrival, for a time",
          "[plan_times]") {
  PlanTimes times(kPlanTrial);
  for (int round = 0; round < 2; ++round) {
    times.OnPlan(OrderedPlan(1));
    CHECK(CountUntilWrong(times, 12'000, 1'000) == 3);
    CHECK_FALSE(times.Samples().empty());
    times.OnPlan(OrderedPlan(2));
    CHECK(CountUntilWrong(times, 12'000, 1'000) == 6);
    CHECK(times.Samples().empty());
    // A plan without a forecast; another rank declines the first one.
    int64_t now_ns = 5;
    for (uint64_t i = 1; i < PlanTimes::kArrivalIterations; ++i) {
      if (i % 600 == 1) {
        TimedPlan by_arrival = PlanWithForecast(3);
        by_arrival.forecast.reset();
        by_arrival.obstacle = "there are no times of calls";
        times.OnPlan(by_arrival);
        CHECK(times.Text() == "plan 3 is by arrival: plans by time have gained nothing");
      }
      REQUIRE_FALSE(IsWrongAfter(times, now_ns, 50'000, 50'000));
      if (i % 600 == 0) CHECK_FALSE(times.OnAbandoned());
    }
    CHECK(times.Samples().empty());
    CHECK(IsWrongAfter(times, now_ns, 50'000, 50'000));
    CHECK_FALSE(times.OnAbandoned());  // no forecast was wrong
    CHECK_FALSE(times.Samples().empty());
  }
}

TEST_CASE("A wrong plan that gained something is no vain one", "[plan_times]") {
  const bool is_late = GENERATE(false, true);
  PlanTimes times(kPlanTrial);
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
    times.OnPlan(OrderedPlan(epoch));
    int64_t now_ns = 5;
    if (is_late) {  // the network becomes slower
      for (int i = 0; i < 100; ++i) REQUIRE_FALSE(IsWrongAfter(times, now_ns, 10'000, 1'000));
    }
    // Shorter than the order of arrival was predicted, or not.
    const int64_t length_ns = is_late ? 12'000 : 11'999;
    while (!IsWrongAfter(times, now_ns, length_ns, 5'000)) REQUIRE(now_ns < 10'000'000);
    CHECK(times.OnAbandoned());
    CHECK_FALSE(times.Samples().empty());
  }
}

TEST_CASE("Vain plans count in a row", "[plan_times]") {
  PlanTimes times(kPlanTrial);
  for (const bool is_vain : {true, false, true, false, true, true}) {
    REQUIRE_FALSE(times.Samples().empty());
    times.OnPlan(OrderedPlan(1));
    CountUntilWrong(times, is_vain ? 12'000 : 11'999, 5'000);
  }
  CHECK(times.Samples().empty());
}

TEST_CASE("Nothing is watched without a forecast, or on another rank than 0", "[plan_times]") {
  const bool has_trial = GENERATE(true, false);
  PlanTimes times(has_trial ? kPlanTrial : Samples());
  TimedPlan plan = PlanWithForecast(1);
  if (has_trial) plan.forecast.reset();
  times.OnPlan(plan);
  int64_t now_ns = 5;
  for (int i = 0; i < 10; ++i) CHECK_FALSE(IsWrongAfter(times, now_ns, 50'000, 50'000));
  CHECK_FALSE(times.OnAbandoned());
  CHECK(times.WrongText().empty());
}

TEST_CASE("The words of a plan tell that it was abandoned, and why", "[plan_times]") {
  PlanTimes times(kPlanTrial);
  times.OnPlan(PlanWithForecast(7));
  CHECK(times.Text().starts_with("plan 7 by time: "));
  CHECK(CountUntilWrong(times, 20'000, 5'000) == 3);
  CHECK(times.Text() == "plan 7 was abandoned, and another one is learned");
  CHECK(times.WrongText().starts_with(
      "the forecast of plan 7 was wrong: the network is slower, or a rank is late in 3 "));
  times.OnPlan(PlanWithForecast(8));
  CHECK(times.Text().starts_with("plan 8 by time: "));
  CHECK(times.WrongText().starts_with("the forecast of plan 7 was wrong: "));
}

}  // namespace
}  // namespace lmdbio::sync
