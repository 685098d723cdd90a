// Goal: a forecast is wrong when three iterations in a row are, and only if another plan may gain;
// the finding tells a slower or faster network from a program that computes longer or less.
#include "lmdbio/sync/schedule/forecast_watch.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using ForecastFault = WrongForecast::ForecastFault;

struct WatchedCall {
  uint64_t bytes = 0;
  int64_t ns = 0;
  TransferStart start = TransferStart::kMeets;
};
using WatchedCalls = std::vector<WatchedCall>;

// A call takes a nanosecond for each byte. An iteration is predicted to take 10,000 ns, and 8,000
// of them are computing.
class WatchedPlan {
 public:
  explicit WatchedPlan(uint32_t wrong_in_row = ForecastWatch::kWrongInRow,
                       const ExpectedIteration& expected = {.length_ns = 10'000,
                                                            .computing_ns = 8'000})
      : watch_(*TransferModel::FromPoints({{500, 500}, {2000, 2000}}), expected, wrong_in_row) {
    watch_.OnIterationEnd(now_ns_);
  }

  WatchedPlan& Iterate(int64_t length_ns, const WatchedCalls& calls) {
    for (const WatchedCall& call : calls) watch_.OnCall({call.bytes, call.ns}, call.start);
    now_ns_ += length_ns;
    watch_.OnIterationEnd(now_ns_);
    return *this;
  }
  // With calls of 1,000 bytes that take so long.
  WatchedPlan& Iterate(int64_t length_ns, int64_t call_ns) {
    return Iterate(length_ns, {{1000, call_ns}, {1000, call_ns}});
  }

  const std::optional<WrongForecast>& wrong() const { return watch_.wrong(); }

 private:
  int64_t now_ns_ = 77;
  ForecastWatch watch_;
};

std::optional<ForecastFault> FaultOf(const WatchedPlan& plan) {
  return plan.wrong() ? std::optional(plan.wrong()->fault) : std::nullopt;
}

// The fault after three iterations of this kind.
std::optional<ForecastFault> FaultAfter(int64_t length_ns, int64_t call_ns) {
  WatchedPlan plan;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(plan.wrong());
    plan.Iterate(length_ns, call_ns);
  }
  return FaultOf(plan);
}

TEST_CASE("Each limit of a forecast holds to the nanosecond", "[forecast_watch]") {
  CHECK(FaultAfter(10'000, 1000) == std::nullopt);
  // Slower calls, if the iteration is more than 2 % longer.
  CHECK(FaultAfter(11'500, 1250) == std::nullopt);
  CHECK(FaultAfter(10'201, 1251) == ForecastFault::kSlowerNetwork);
  CHECK(FaultAfter(10'200, 1251) == std::nullopt);
  CHECK(FaultAfter(10'000, 9999) == std::nullopt);
  // Faster calls, if the iteration takes 2 % longer than computing.
  CHECK(FaultAfter(8'500, 800) == std::nullopt);
  CHECK(FaultAfter(8'161, 799) == ForecastFault::kFasterNetwork);
  CHECK(FaultAfter(8'160, 799) == std::nullopt);
  CHECK(FaultAfter(8'000, 1) == std::nullopt);
  // As predicted, but the iteration is not.
  CHECK(FaultAfter(11'501, 1250) == ForecastFault::kLongerProgram);
  CHECK(FaultAfter(8'499, 800) == ForecastFault::kShorterProgram);
}

TEST_CASE("The spread of the program's iterations is no fault of the network", "[forecast_watch]") {
  const auto fault_of = [](int64_t spread_ns, int64_t length_ns, int64_t call_ns) {
    const ExpectedIteration expected{
        .length_ns = 10'000, .computing_ns = 8'000, .spread_ns = spread_ns};
    WatchedPlan plan(ForecastWatch::kWrongInRow, expected);
    for (int i = 0; i < 3; ++i) plan.Iterate(length_ns, call_ns);
    return FaultOf(plan);
  };
  CHECK(fault_of(1000, 11'220, 1251) == std::nullopt);
  CHECK(fault_of(1000, 11'221, 1251) == ForecastFault::kSlowerNetwork);
  CHECK(fault_of(1000, 9'180, 799) == std::nullopt);
  CHECK(fault_of(1000, 9'181, 799) == ForecastFault::kFasterNetwork);
  // 15 % of the forecast at most.
  CHECK(fault_of(1'000'000, 11'730, 1251) == std::nullopt);
  CHECK(fault_of(1'000'000, 11'731, 1251) == ForecastFault::kSlowerNetwork);
  CHECK(fault_of(1'000'000, 9'690, 799) == std::nullopt);
  CHECK(fault_of(1'000'000, 9'691, 799) == ForecastFault::kFasterNetwork);
  // With calls as predicted, it does not count.
  CHECK(fault_of(1'000'000, 11'501, 1250) == ForecastFault::kLongerProgram);
  CHECK(fault_of(1'000'000, 8'499, 800) == ForecastFault::kShorterProgram);
}

TEST_CASE("A finding has the numbers of the wrong iterations", "[forecast_watch]") {
  WatchedPlan plan;
  plan.Iterate(10'000, 1000).Iterate(11'000, 3000).Iterate(11'000, 3000).Iterate(12'000, 6000);
  REQUIRE(plan.wrong());
  CHECK(plan.wrong()->iteration_count == 3);
  CHECK(plan.wrong()->expected_ns == 10'000);
  CHECK(plan.wrong()->length_ns == 12'000);
  CHECK(plan.wrong()->mean_length_ns == 11'333);
  CHECK(plan.wrong()->expected_calls_ns == 6'000);
  CHECK(plan.wrong()->calls_ns == 24'000);
}

TEST_CASE("Wrong iterations count in a row, and each kind adds to the others", "[forecast_watch]") {
  WatchedPlan interrupted;
  for (int i = 0; i < 50; ++i) {
    interrupted.Iterate(12'000, 1300).Iterate(12'000, 1300).Iterate(10'000, 1000);
  }
  CHECK_FALSE(interrupted.wrong());
  // The iterations before the right one are forgotten.
  interrupted.Iterate(12'000, 1000).Iterate(12'000, 1000).Iterate(12'000, 1000);
  CHECK(FaultOf(interrupted) == ForecastFault::kLongerProgram);
  CHECK(interrupted.wrong()->calls_ns == 6'000);

  WatchedPlan mixed;
  mixed.Iterate(12'000, 1000).Iterate(12'000, 1300);
  CHECK_FALSE(mixed.wrong());
  mixed.Iterate(12'000, 1300);
  CHECK(FaultOf(mixed) == ForecastFault::kSlowerNetwork);
  CHECK(mixed.wrong()->iteration_count == 3);
}

TEST_CASE("A forecast is wrong from the begin if few iterations were right", "[forecast_watch]") {
  const auto is_from_begin = [](int right_count) {
    WatchedPlan plan;
    for (int i = 0; i < right_count; ++i) plan.Iterate(10'000, 1000);
    for (int i = 0; i < 3; ++i) plan.Iterate(12'000, 1300);
    REQUIRE(plan.wrong());
    return plan.wrong()->is_from_begin;
  };
  CHECK(is_from_begin(0));
  CHECK(is_from_begin(3));
  CHECK_FALSE(is_from_begin(4));
}

// The limits of calls are not exceeded, but the iteration is longer or shorter because of them.
TEST_CASE("The network is named if calls make up more than half of the difference",
          "[forecast_watch]") {
  const auto fault_of = [](int64_t length_ns, const WatchedCalls& calls) {
    WatchedPlan plan;
    for (int i = 0; i < 3; ++i) plan.Iterate(length_ns, calls);
    return FaultOf(plan);
  };
  CHECK(fault_of(11'600, {{4000, 4800}}) == ForecastFault::kLongerProgram);
  CHECK(fault_of(11'600, {{4000, 4801}}) == ForecastFault::kSlowerNetwork);
  CHECK(fault_of(8'400, {{4000, 3201}}) == ForecastFault::kShorterProgram);
  CHECK(fault_of(8'400, {{4000, 3200}, {1000, 999}}) == ForecastFault::kFasterNetwork);
  // Iterations before a right one do not count.
  const auto fault_after_others = [](int64_t call_ns) {
    WatchedPlan plan;
    for (int i = 0; i < 2; ++i) plan.Iterate(12'000, {{4000, 4000}});
    plan.Iterate(10'000, {{4000, 4000}});
    for (int i = 0; i < 3; ++i) plan.Iterate(11'600, {{4000, call_ns}});
    return FaultOf(plan);
  };
  CHECK(fault_after_others(4801) == ForecastFault::kSlowerNetwork);
  CHECK(fault_after_others(4799) == ForecastFault::kLongerProgram);
  // Slices tell of the other calls.
  const WatchedCall goes_on{1000, 1201, TransferStart::kGoesOn};
  CHECK(fault_of(11'600, {{3000, 3000}, goes_on}) == ForecastFault::kSlowerNetwork);
  CHECK(fault_of(11'608, {{3000, 3000}, goes_on}) == ForecastFault::kLongerProgram);
}

TEST_CASE("The number of wrong iterations is given", "[forecast_watch]") {
  WatchedPlan plan(6);
  for (int i = 0; i < 5; ++i) plan.Iterate(20'000, 5000);
  CHECK_FALSE(plan.wrong());
  plan.Iterate(20'000, 5000);
  CHECK(FaultOf(plan) == ForecastFault::kSlowerNetwork);
}

// The program may have been in the middle of an iteration.
TEST_CASE("The iteration in which the watch begins does not count", "[forecast_watch]") {
  ForecastWatch watch(*TransferModel::FromPoints({{500, 500}, {2000, 2000}}),
                      {.length_ns = 10'000, .computing_ns = 8'000}, 1);
  watch.OnCall({1000, 9000}, TransferStart::kMeets);
  watch.OnIterationEnd(1'000'000);
  CHECK_FALSE(watch.wrong());
  watch.OnCall({1000, 1000}, TransferStart::kMeets);
  watch.OnIterationEnd(1'011'000);
  CHECK_FALSE(watch.wrong());  // nor do its calls
  watch.OnIterationEnd(1'023'000);
  CHECK(watch.wrong());
}

TEST_CASE("Most calls are those of more than half of the time", "[forecast_watch]") {
  const WatchedCall slow{1000, 2000};
  const WatchedCall right{3000, 3000};
  const auto fault_of = [](const WatchedCalls& calls) {
    WatchedPlan plan;
    for (int i = 0; i < 3; ++i) plan.Iterate(11'000, calls);
    return FaultOf(plan);
  };
  CHECK(fault_of({slow, slow, slow, right}) == std::nullopt);
  CHECK(fault_of({slow, slow, slow, slow, right}) == ForecastFault::kSlowerNetwork);
  const WatchedCall fast{1000, 500};
  CHECK(fault_of({fast, fast, fast, right}) == std::nullopt);
  CHECK(fault_of({fast, fast, fast, fast, right}) == ForecastFault::kFasterNetwork);
  CHECK(fault_of({}) == std::nullopt);
}

TEST_CASE("A late rank is no slower network, if slices tell", "[forecast_watch]") {
  const WatchedCall waits{1000, 9000};
  const WatchedCall goes_on{1000, 1000, TransferStart::kGoesOn};
  const auto wrong_after = [](int64_t length_ns, const WatchedCalls& calls) {
    WatchedPlan plan;
    for (int i = 0; i < 3; ++i) plan.Iterate(length_ns, calls);
    return plan.wrong();
  };
  // A quarter of the time is that of slices.
  CHECK_FALSE(wrong_after(11'000, {waits, waits, waits, goes_on}));
  const auto late = wrong_after(12'000, {waits, waits, waits, goes_on});
  REQUIRE(late);
  CHECK(late->fault == ForecastFault::kLongerProgram);
  CHECK_FALSE(late->may_be_late);
  CHECK(late->calls_ns == 3'000);
  // Slices are too few.
  const auto unknown = wrong_after(11'000, {waits, waits, waits, waits, goes_on});
  REQUIRE(unknown);
  CHECK(unknown->fault == ForecastFault::kSlowerNetwork);
  CHECK(unknown->may_be_late);
  CHECK(unknown->calls_ns == 3 * 37'000);
  const auto slower = wrong_after(11'000, {waits, {1000, 1500, TransferStart::kGoesOn}});
  REQUIRE(slower);
  CHECK(slower->fault == ForecastFault::kSlowerNetwork);
  CHECK_FALSE(slower->may_be_late);
}

TEST_CASE("Times of years overflow nothing", "[forecast_watch]") {
  ForecastWatch watch(*TransferModel::FromPoints({{1, 1}, {2, TransferModel::kPointNsMax}}),
                      {.length_ns = kScheduleEndNs, .computing_ns = kScheduleEndNs}, 1);
  watch.OnIterationEnd(0);
  for (int i = 0; i < 100; ++i) {
    watch.OnCall({TransferModel::kBytesMax, kScheduleEndNs}, TransferStart::kMeets);
    watch.OnCall({TransferModel::kBytesMax, kScheduleEndNs}, TransferStart::kGoesOn);
  }
  watch.OnIterationEnd(2 * kScheduleEndNs);
  REQUIRE(watch.wrong());
  CHECK(watch.wrong()->fault == ForecastFault::kSlowerNetwork);
}

TEST_CASE("A finding names what has changed", "[forecast_watch]") {
  WrongForecast wrong{.fault = ForecastFault::kSlowerNetwork,
                      .may_be_late = false,
                      .is_from_begin = true,
                      .iteration_count = 3,
                      .expected_ns = 20'000'000,
                      .length_ns = 31'500'000,
                      .mean_length_ns = 30'000'000,
                      .expected_calls_ns = 4'000'000,
                      .calls_ns = 10'000'000};
  CHECK(wrong.Text() ==
        "the network is slower in 3 iterations: the last one took 31.50 ms instead of 20.00, and "
        "calls 2.50 times as long as predicted");
  wrong.may_be_late = true;
  CHECK(wrong.Text().starts_with("the network is slower, or a rank is late in 3 iterations: "));
  wrong.fault = ForecastFault::kFasterNetwork;
  CHECK(wrong.Text().starts_with("the network is faster in 3 iterations: "));
  wrong.fault = ForecastFault::kLongerProgram;
  CHECK(wrong.Text().starts_with("the program computes longer in 3 iterations: "));
  wrong.fault = ForecastFault::kShorterProgram;
  wrong.expected_calls_ns = 0;
  CHECK(wrong.Text() ==
        "the program computes less in 3 iterations: the last one took 31.50 ms instead of 20.00");
}

}  // namespace
}  // namespace lmdbio::sync
