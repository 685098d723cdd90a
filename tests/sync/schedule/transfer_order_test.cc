// Goal: the order by due times is the best one but for one step; all orders make each byte once and
// respect the needs of units; the windows of 4.3 are placed as the paper says.
#include "lmdbio/sync/schedule/transfer_order.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::LatenessOf;
using test::LeastLatenessOfAll;
using test::LongestStepNs;
using test::MakeRandomUnits;
using test::ProblemOfSteps;
using test::Random;
using test::RandomModel;
using test::RandomUnits;
using test::StraightModel;
using Units = std::vector<TransferUnit>;
using Steps = std::vector<TransferStep>;

TransferUnit UnitOf(int64_t ready_ns, int64_t due_ns, uint64_t bytes, uint64_t slice_bytes = 0) {
  TransferUnit unit;
  unit.ready_ns = ready_ns;
  unit.due_ns = due_ns;
  unit.bytes = bytes;
  unit.slice_bytes = slice_bytes;
  return unit;
}

std::vector<size_t> UnitsIn(const Steps& steps) {
  std::vector<size_t> units;
  for (const TransferStep& step : steps) units.push_back(step.unit);
  return units;
}

TEST_CASE("The unit that is due first interrupts a larger one between two slices", "[schedule]") {
  const TransferModel model = StraightModel(0, 10);  // 10 ns a line
  const Units units = {UnitOf(0, 1000, 300, 128), UnitOf(15, 50, 64), UnitOf(15, 50, 0)};
  CHECK(OrderByDue(units, model) ==
        Steps{{0, 0, 128}, {1, 0, 64}, {2, 0, 0}, {0, 128, 128}, {0, 256, 44}});
  CHECK(OrderAsGiven(units) == Steps{{0, 0, 300}, {1, 0, 64}, {2, 0, 0}});
  CHECK(OrderByDue({}, model).empty());
  CHECK(OrderInBins({}, model, 100).empty());
}

TEST_CASE("A unit that is needed is due with the one that needs it", "[schedule]") {
  const TransferModel model = StraightModel(0, 10);
  Units units = {UnitOf(0, 500, 64), UnitOf(0, 400, 64), UnitOf(0, 300, 64), UnitOf(0, 100, 64)};
  CHECK(UnitsIn(OrderByDue(units, model)) == std::vector<size_t>{3, 2, 1, 0});
  units[3].needs_up_to = 0;
  CHECK(UnitsIn(OrderByDue(units, model)) == std::vector<size_t>{0, 3, 2, 1});
  units[3].needs_up_to = 1;
  CHECK(UnitsIn(OrderByDue(units, model)) == std::vector<size_t>{0, 1, 3, 2});
  // It is ready before the one that it needs.
  units[1].ready_ns = 1000;
  CHECK(UnitsIn(OrderByDue(units, model)) == std::vector<size_t>{0, 2, 1, 3});
}

TEST_CASE("No order is better by more than one step", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    const Units units = MakeRandomUnits(random, {});
    const Steps steps = OrderByDue(units, model);
    if (std::string problem = ProblemOfSteps(units, steps); !problem.empty()) return problem;
    const int64_t least = LeastLatenessOfAll(units, model);
    const int64_t lateness = LatenessOf(units, steps, model);
    if (lateness < least) return "better than all orders";
    return lateness <= least + LongestStepNs(steps, model)
               ? ""
               : fmt::format("lateness {}, at best {}", lateness, least);
  });
}

// Slices of one line, which take one unit of the grid: no unit that becomes ready meets a slice
// under way. So the order is the best one.
TEST_CASE("With small slices no order is better", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = StraightModel(0, 5);
    RandomUnits options;
    options.grid_ns = 5;
    options.time_ns_max = 6;
    Units units = MakeRandomUnits(random, options);
    for (TransferUnit& unit : units) {
      unit.bytes = 64 * unit.step_count();
      unit.slice_bytes = 64;
    }
    const Steps steps = OrderByDue(units, model);
    if (std::string problem = ProblemOfSteps(units, steps); !problem.empty()) return problem;
    const int64_t least = LeastLatenessOfAll(units, model);
    const int64_t lateness = LatenessOf(units, steps, model);
    return lateness == least ? "" : fmt::format("lateness {}, at best {}", lateness, least);
  });
}

// Without needs, the greatest lateness of the best preemptive order is known: the work of all units
// that are ready after some time and due before another one must lie behind the former.
int64_t LeastLateness(const Units& units, const TransferModel& model) {
  int64_t lateness = std::numeric_limits<int64_t>::min();
  for (const TransferUnit& first : units) {
    for (const TransferUnit& last : units) {
      int64_t work_ns = 0;
      for (const TransferUnit& unit : units) {
        const bool is_within = unit.ready_ns >= first.ready_ns && unit.due_ns <= last.due_ns;
        if (is_within) work_ns += model.TimeOf(unit.bytes);
      }
      if (work_ns > 0) lateness = std::max(lateness, first.ready_ns + work_ns - last.due_ns);
    }
  }
  return lateness;
}

TEST_CASE("Many units with small slices are as late as preemption permits", "[schedule]") {
  ForSeeds(300, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = StraightModel(0, 5);
    Units units(random.Between(1, 60));
    const uint64_t time_max = random.Between(1, 300);
    for (TransferUnit& unit : units) {
      unit = UnitOf(5 * static_cast<int64_t>(random.Below(time_max)),
                    5 * static_cast<int64_t>(random.Below(2 * time_max)),
                    64 * random.Between(1, 10), 64);
    }
    const Steps steps = OrderByDue(units, model);
    if (std::string problem = ProblemOfSteps(units, steps); !problem.empty()) return problem;
    const int64_t least = LeastLateness(units, model);
    const int64_t lateness = LatenessOf(units, steps, model);
    return lateness == least ? "" : fmt::format("lateness {}, at best {}", lateness, least);
  });
}

TEST_CASE("Units in another order make the same steps", "[schedule]") {
  ForSeeds(500, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    RandomUnits options;
    options.has_needs = false;
    Units units = MakeRandomUnits(random, options);
    // No two units are equal in anything that decides.
    for (size_t i = 0; i < units.size(); ++i) {
      units[i].ready_ns = units[i].ready_ns * 8 + static_cast<int64_t>(i);
      units[i].due_ns = units[i].due_ns * 8 + static_cast<int64_t>(i);
      units[i].bytes = units[i].bytes * 8 + i;
      if (units[i].slice_bytes > 0) units[i].slice_bytes *= 8;
    }
    std::vector<size_t> places(units.size());  // the index of a unit among the others
    std::iota(places.begin(), places.end(), size_t{0});
    random.Shuffle(places);
    Units moved(units.size());
    for (size_t i = 0; i < units.size(); ++i) moved[places[i]] = units[i];
    const int64_t length_ns = 400;
    const auto is_same = [&](Steps steps, const Steps& moved_steps) {
      for (TransferStep& step : steps) step.unit = places[step.unit];
      return steps == moved_steps;
    };
    if (!is_same(OrderByDue(units, model), OrderByDue(moved, model))) return "by due time";
    return is_same(OrderInBins(units, model, length_ns), OrderInBins(moved, model, length_ns))
               ? ""
               : "in bins";
  });
}

TEST_CASE("Bins take the largest unit first", "[schedule]") {
  const TransferModel model = StraightModel(0, 10);
  // Beside the backward pass, which takes 100 ns, there is room for one of the first two.
  const Units units = {UnitOf(0, 200, 320), UnitOf(0, 200, 384), UnitOf(100, 200, 64)};
  // Unit 1 is placed in [0, 60], unit 0 in [150, 200] and unit 2 in [140, 150].
  CHECK(OrderInBins(units, model, 200) == Steps{{1, 0, 384}, {2, 0, 64}, {0, 0, 320}});
}

TEST_CASE("Bins take the first gap of the backward pass, and the last one of the forward pass",
          "[schedule]") {
  const TransferModel model = StraightModel(0, 10);
  const Units units = {
      UnitOf(40, 300, 256),   // [40, 80] of 100
      UnitOf(0, 300, 192),    // [0, 30]
      UnitOf(20, 300, 128),   // [80, 100]
      UnitOf(30, 300, 64),    // [30, 40]
      UnitOf(100, 200, 640),  // forward, [100, 200]
      UnitOf(100, 290, 512),  // [210, 290]
      UnitOf(100, 300, 63),   // [290, 300]
      UnitOf(100, 215, 62),   // [200, 210]
  };
  CHECK(UnitsIn(OrderInBins(units, model, 300)) == std::vector<size_t>{1, 3, 0, 2, 4, 7, 5, 6});
}

// The backward pass ends with the unit that is ready at 130. In both cases the first unit takes all
// or a part of the forward pass, and the others, of which the second one is smaller, fit nowhere.
TEST_CASE("Bins place the rest where the iteration grows less", "[schedule]") {
  const TransferModel model = StraightModel(0, 10);
  // Beside the forward pass [200, 400] is taken. Before it, 110 ns for unit 1 make the iteration
  // grow by 40, and then 100 ns for unit 2 by 100, as behind the backward pass.
  const Units ahead = {UnitOf(130, 400, 1280), UnitOf(130, 400, 704), UnitOf(130, 400, 640)};
  CHECK(UnitsIn(OrderInBins(ahead, model, 400)) == std::vector<size_t>{2, 1, 0});
  // [130, 330] is taken. Unit 1 is ready at 40: behind the backward pass, 100 ns make the iteration
  // grow by 10. Then it grows by 90 for unit 2 on either side.
  const Units behind = {UnitOf(130, 330, 1280), UnitOf(40, 200, 640), UnitOf(60, 200, 576)};
  CHECK(UnitsIn(OrderInBins(behind, model, 330)) == std::vector<size_t>{1, 2, 0});
}

TEST_CASE("Bins make each byte once and respect needs", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    const Units units = MakeRandomUnits(random, {});
    const Steps steps = OrderInBins(units, model, static_cast<int64_t>(random.Below(100)));
    if (steps.size() != units.size()) return "a unit is not whole";
    return ProblemOfSteps(units, steps);
  });
}

}  // namespace
}  // namespace lmdbio::sync
