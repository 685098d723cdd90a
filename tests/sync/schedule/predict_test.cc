// Goal: the predicted iteration is that of a program which submits, waits and stops as it says; no
// steps are faster than the bound.
#include "lmdbio/sync/schedule/predict.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::MakeRandomUnits;
using test::Random;
using test::RandomModel;
using test::RandomUnits;
using test::StraightModel;
using Units = std::vector<TransferUnit>;
using Steps = std::vector<TransferStep>;

// 10 ns a line.
TransferUnit ChannelUnit(int64_t ready_ns, int64_t due_ns, int64_t channel_ns,
                         int64_t slice_ns = 0) {
  TransferUnit unit;
  unit.ready_ns = ready_ns;
  unit.due_ns = due_ns;
  unit.bytes = static_cast<uint64_t>(channel_ns) * 64 / 10;
  unit.slice_bytes = static_cast<uint64_t>(slice_ns) * 64 / 10;
  return unit;
}
const TransferModel& TenNsALine() {
  static const TransferModel model = StraightModel(0, 10);
  return model;
}

int64_t LengthOf(const Units& units, const Steps& steps, int64_t length_ns) {
  const PredictedIteration iteration = PredictIteration(units, steps, length_ns, TenNsALine());
  CHECK(iteration.length_ns - iteration.stall_ns == length_ns);
  return iteration.length_ns;
}

TEST_CASE("A program stops at a due time until the unit is there", "[schedule]") {
  CHECK(LengthOf({}, {}, 100) == 100);
  const Units early = {ChannelUnit(0, 50, 50)};
  CHECK(LengthOf(early, OrderAsGiven(early), 100) == 100);
  const Units late = {ChannelUnit(0, 50, 70)};
  CHECK(LengthOf(late, OrderAsGiven(late), 100) == 120);
  // The second wait comes 20 ns later on the wall clock, too.
  const Units two = {ChannelUnit(0, 50, 70), ChannelUnit(0, 60, 20)};
  CHECK(LengthOf(two, OrderAsGiven(two), 100) == 130);
  // A submission after a stop is as late as the stop: the second one begins at 80.
  const Units after = {ChannelUnit(0, 50, 70), ChannelUnit(60, 90, 40)};
  CHECK(LengthOf(after, OrderAsGiven(after), 100) == 130);
  // All is ready, but the step before it has a later unit.
  const Units blocked = {ChannelUnit(40, 90, 10), ChannelUnit(0, 45, 10)};
  CHECK(LengthOf(blocked, OrderAsGiven(blocked), 100) == 115);
  CHECK(LengthOf(blocked, OrderByDue(blocked, TenNsALine()), 100) == 100);
  // A unit that is ready when it is due.
  const Units at_once = {ChannelUnit(30, 30, 20)};
  CHECK(LengthOf(at_once, OrderAsGiven(at_once), 100) == 120);
}

TEST_CASE("A unit is there with its last slice", "[schedule]") {
  const Units units = {ChannelUnit(0, 100, 80, 40), ChannelUnit(20, 50, 20)};
  CHECK(LengthOf(units, OrderAsGiven(units), 100) == 150);
  CHECK(LengthOf(units, OrderByDue(units, TenNsALine()), 100) == 110);
}

TEST_CASE("A wait in the next iteration is for the last one", "[schedule]") {
  // Submitted at 50, on the channel until 130, waited for at 110 of the next: nothing stops.
  const Units units = {ChannelUnit(50, 110, 60)};
  CHECK(LengthOf(units, OrderAsGiven(units), 100) == 100);
  const Units late = {ChannelUnit(50, 110, 80)};
  CHECK(LengthOf(late, OrderAsGiven(late), 100) == 120);
  // The last wait of an iteration comes before the first submission of the next one.
  const Units at_end = {ChannelUnit(0, 100, 140)};
  CHECK(LengthOf(at_end, OrderAsGiven(at_end), 100) == 140);
}

TEST_CASE("In the long run an iteration takes the time of its steps", "[schedule]") {
  const Units units = {ChannelUnit(0, 900, 130)};
  CHECK(LengthOf(units, OrderAsGiven(units), 100) == 130);
}

TEST_CASE("The channel makes an iteration after the other", "[schedule]") {
  // The first unit of the next iteration waits until the second one is done, at 130.
  const Units units = {ChannelUnit(0, 30, 30), ChannelUnit(50, 140, 80)};
  CHECK(LengthOf(units, OrderAsGiven(units), 100) == 130);
}

TEST_CASE("A unit that is submitted after a wait comes from a rank that does not stop",
          "[schedule]") {
  const Units units = {ChannelUnit(60, 90, 10), ChannelUnit(0, 40, 10)};
  // The wait at 40 ends at 80. The submission at 60 was not delayed by it.
  CHECK(LengthOf(units, OrderAsGiven(units), 100) == 140);
  // Neither is a slice after the wait: it ends at 90, and the wait at 65 begins at 105.
  const Units sliced = {ChannelUnit(60, 65, 20, 10), ChannelUnit(0, 40, 10)};
  CHECK(LengthOf(sliced, {{0, 0, 64}, {1, 0, 64}, {0, 64, 64}}, 100) == 140);
}

// Without waits before submissions, the channel and the program can be played on one time line.
int64_t PlayedLength(const Units& units, const Steps& steps, int64_t length_ns,
                     const TransferModel& model) {
  int64_t begin_ns = 0;
  int64_t free_ns = 0;
  int64_t played_ns = 0;
  for (int iteration = 0; iteration < 3; ++iteration) {
    std::vector<int64_t> done_ns(units.size());
    for (const TransferStep& step : steps) {
      free_ns = std::max(free_ns, begin_ns + units[step.unit].ready_ns) + model.TimeOf(step.bytes);
      done_ns[step.unit] = free_ns;
    }
    int64_t stop_ns = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      stop_ns = std::max(stop_ns, done_ns[i] - (begin_ns + units[i].due_ns));
    }
    played_ns = length_ns + stop_ns;
    begin_ns += played_ns;
  }
  return played_ns;
}

TEST_CASE("Programs that wait after the backward pass are played as on one time line",
          "[schedule]") {
  ForSeeds(1'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    Units units = MakeRandomUnits(random, {});
    for (TransferUnit& unit : units) unit.due_ns += 40;
    const int64_t length_ns = 120 + static_cast<int64_t>(random.Below(50));
    for (const Steps& steps : {OrderByDue(units, model), OrderInBins(units, model, length_ns)}) {
      const int64_t predicted_ns = PredictIteration(units, steps, length_ns, model).length_ns;
      const int64_t played_ns = PlayedLength(units, steps, length_ns, model);
      if (predicted_ns != played_ns) return fmt::format("{}, not {}", predicted_ns, played_ns);
    }
    return "";
  });
}

TEST_CASE("No steps are faster than the bound", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    const Units units = MakeRandomUnits(random, {});
    const auto length_ns = static_cast<int64_t>(random.Between(40, 100));
    const int64_t bound_ns = LowerBound(units, length_ns, model);
    for (const Steps& steps :
         {OrderByDue(units, model), OrderAsGiven(units), OrderInBins(units, model, length_ns)}) {
      const int64_t predicted_ns = PredictIteration(units, steps, length_ns, model).length_ns;
      if (predicted_ns < bound_ns) return fmt::format("{} < {}", predicted_ns, bound_ns);
    }
    return "";
  });
}

// The greatest lateness that no preemptive order avoids: the work of all units that are ready after
// some time and due before another one lies behind the former.
int64_t BoundOf(const Units& units, int64_t length_ns, const TransferModel& model) {
  int64_t bound_ns = length_ns;
  uint64_t bytes = 0;
  for (const TransferUnit& first : units) {
    bytes += first.bytes;
    for (const TransferUnit& last : units) {
      int64_t work_ns = 0;
      size_t count = 0;
      for (const TransferUnit& unit : units) {
        if (unit.ready_ns < first.ready_ns || unit.due_ns > last.due_ns) continue;
        work_ns += model.LeastTimeOf(unit.bytes);
        ++count;
      }
      if (count == 0 || last.due_ns > length_ns) continue;
      bound_ns = std::max(bound_ns, length_ns + first.ready_ns + work_ns - last.due_ns);
    }
  }
  return std::max(bound_ns, model.LeastTimeOf(bytes));
}

TEST_CASE("The bound is that of the best preemptive order", "[schedule]") {
  ForSeeds(1'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    RandomUnits options;
    options.count_max = 20;
    options.steps_max = 25;
    const Units units = MakeRandomUnits(random, options);
    const auto length_ns = static_cast<int64_t>(random.Between(1, 100));
    const int64_t bound_ns = LowerBound(units, length_ns, model);
    const int64_t expected_ns = BoundOf(units, length_ns, model);
    return bound_ns == expected_ns ? "" : fmt::format("{}, not {}", bound_ns, expected_ns);
  });
  CHECK(LowerBound({}, 100, TenNsALine()) == 100);
}

TEST_CASE("A schedule is worth it if the other plan takes more than 1.02 of it", "[schedule]") {
  CHECK_FALSE(IsWorthIt(1000, 1000));
  CHECK_FALSE(IsWorthIt(1000, 1020));
  CHECK(IsWorthIt(1000, 1021));
  CHECK_FALSE(IsWorthIt(1001, 1021));  // 1021.02
  CHECK(IsWorthIt(1001, 1022));
  CHECK_FALSE(IsWorthIt(1000, 900));
}

}  // namespace
}  // namespace lmdbio::sync
