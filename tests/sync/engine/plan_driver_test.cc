// Goal: a plan sends its buckets in order and only when they are full; a rank that leaves the plan
// declines once, and no submission is lost.
#include "lmdbio/sync/engine/plan_driver.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/engine/engine_parts.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

using Clock = PlanDriver::Clock;
using PlanStepOutcome = PlanDriver::PlanStepOutcome;
using Names = std::vector<std::string>;

constexpr auto kPatience = 100ms;

Plan PlanOf(const std::string& names, uint64_t threshold_bytes) {
  std::vector<OrderedTensor> order;
  for (const char name : names) {
    OrderedTensor& one = order.emplace_back();
    one.tensor = AllReduceOf(std::string(1, name), nullptr, nullptr, 1).request;
    one.needs_up_to = -1;
  }
  return Plan::FromOrder(order, {.fusion = {.threshold_bytes = threshold_bytes}}, 1);
}

class Failed final : public ranks::Health {
 public:
  bool has_failed = false;
  Status Check() override {
    return has_failed ? Fail(ErrorCode::kPeerFailed, "rank 1 is gone") : Status();
  }
  void GiveUp(const Error&) override {}
};

struct PlanDriverSetup {
  PlanDriverSetup()
      : driver({parts.transport, health, *parts.collectives, parts.executor, *parts.queue,
                parts.tracer, parts.tasks, parts.counters.current()},
               kPatience) {}

  TaskPtr Submit(const std::string& name) {
    TaskPtr task = parts.Submit(name);
    driver.Submit(task->submission.request);
    return task;
  }
  PlanStepOutcome Step(Clock::duration later = {}) {
    const auto outcome = driver.Step(Clock::now() + later);
    REQUIRE(outcome);
    return *outcome;
  }
  Names TakeUnsent() {
    Names names;
    for (const Request& request : driver.TakeAbandoned().unsent) names.push_back(request.name);
    return names;
  }

  test::EnginePartsOfOneRank parts;
  Failed health;
  PlanDriver driver;
};

TEST_CASE("A bucket is sent when it is full and those before it are sent", "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("abc", 128), {});  // {a, b}, {c}
  REQUIRE(setup.driver.missing_count() == 2);
  const TaskPtr c = setup.Submit("c");
  const TaskPtr a = setup.Submit("a");
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
  REQUIRE(setup.driver.missing_count() == 1);
  const TaskPtr b = setup.Submit("b");
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  REQUIRE(a->is_done.load() == 1);
  REQUIRE(b->is_done.load() == 1);
  REQUIRE(c->is_done.load() == 0);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  REQUIRE(c->is_done.load() == 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
  REQUIRE(setup.driver.is_following());
}

// The forecast expects calls of an hour. So each iteration is wrong, whatever it takes.
TEST_CASE("A plan whose forecast is wrong is declined when its first bucket is full",
          "[sync][plan_driver]") {
  constexpr int64_t kHourNs = 3'600'000'000'000;
  PlanDriverSetup setup;
  PlanTimes times({{1, kHourNs}, {1 << 20, 2 * kHourNs}});
  setup.parts.executor.set_plan_times(&times);
  PlanDriver driver({setup.parts.transport, setup.health, *setup.parts.collectives,
                     setup.parts.executor, *setup.parts.queue, setup.parts.tracer,
                     setup.parts.tasks, setup.parts.counters.current(), &times},
                    kPatience);
  times.OnPlan({.plan = PlanOf("ab", 0),
                .forecast = PlanForecast{.iteration_ns = 2 * kHourNs},
                .model = *TransferModel::FromSamples(times.Samples())});
  driver.Follow(PlanOf("ab", 0), {});
  const auto submit = [&](const std::string& name) {
    driver.Submit(setup.parts.Submit(name)->submission.request);
  };
  // The first one does not count.
  for (uint32_t i = 0; i < 1 + ForecastWatch::kWrongInRow; ++i) {
    for (const char* const name : {"a", "b"}) {
      submit(name);
      REQUIRE(driver.Step(Clock::now()) == PlanStepOutcome::kMade);
    }
  }
  submit("b");
  REQUIRE(driver.Step(Clock::now()) == PlanStepOutcome::kIdle);  // others may not have a either
  submit("a");
  REQUIRE(driver.Step(Clock::now()) == PlanStepOutcome::kAbandoned);
  const AbandonedPlan abandoned = driver.TakeAbandoned();
  CHECK(abandoned.done.empty());
  REQUIRE(abandoned.unsent.size() == 2);
  CHECK(abandoned.unsent[0].name == "a");
  CHECK(abandoned.unsent[1].name == "b");
  CHECK(times.OnAbandoned());
}

TEST_CASE("Pending requests become part of the plan, but proposals do not", "[sync][plan_driver]") {
  PlanDriverSetup setup;
  const TaskPtr a = setup.parts.Submit("a");
  Request proposal;
  proposal.name = "lmdbio.plan.2";
  proposal.operation = Operation::kAdoptPlan;
  setup.driver.Follow(PlanOf("ab", 128), {a->submission.request, proposal});
  REQUIRE(setup.driver.missing_count() == 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
}

TEST_CASE("A tensor outside the plan abandons it, and nothing is lost", "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("abc", 0), {});
  setup.Submit("a");
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const TaskPtr b = setup.Submit("b");  // its bucket is full, but must not be sent any more
  setup.Submit("x");
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  AbandonedPlan abandoned = setup.driver.TakeAbandoned();
  REQUIRE(abandoned.unsent.size() == 2);
  REQUIRE(abandoned.unsent[0].name == "x");
  REQUIRE(abandoned.unsent[1].name == "b");
  REQUIRE(abandoned.done.size() == 1);
  REQUIRE(abandoned.done[0].tensors[0].name == "a");
  REQUIRE_FALSE(setup.driver.is_following());
  REQUIRE(b->is_done.load() == 0);
  REQUIRE(setup.parts.counters.current().plan_count == 1);
  REQUIRE(setup.parts.counters.current().plan_end_count == 1);
}

TEST_CASE("A missing tensor abandons the plan after the patience if a thread waits",
          "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("ab", 128), {});
  setup.Submit("a");
  setup.parts.queue->BeginWait();
  REQUIRE(setup.Step(kPatience / 2) == PlanStepOutcome::kIdle);
  REQUIRE(setup.Step(2 * kPatience) == PlanStepOutcome::kAbandoned);
  REQUIRE(setup.TakeUnsent() == Names{"a"});
}

TEST_CASE("If no thread waits, the plan is abandoned after ten times the patience",
          "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("ab", 128), {});
  setup.Submit("a");
  REQUIRE(setup.Step(9 * kPatience) == PlanStepOutcome::kIdle);
  REQUIRE(setup.Step(11 * kPatience) == PlanStepOutcome::kAbandoned);
}

TEST_CASE("A wake-up alone never abandons a plan", "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("ab", 128), {});
  REQUIRE(setup.Step(100 * kPatience) == PlanStepOutcome::kIdle);  // nothing is submitted
  setup.parts.transport.is_called = true;
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
  REQUIRE(setup.Step(2 * kPatience) == PlanStepOutcome::kAbandoned);
  REQUIRE(setup.driver.TakeAbandoned().is_called);
}

TEST_CASE("A wake-up by a rank that has given up ends the step with its error",
          "[sync][plan_driver]") {
  PlanDriverSetup setup;
  setup.driver.Follow(PlanOf("ab", 128), {});
  setup.health.has_failed = true;
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
  setup.parts.transport.is_called = true;
  const auto outcome = setup.driver.Step(Clock::now());
  REQUIRE_FALSE(outcome);
  REQUIRE(outcome.error().message() == "rank 1 is gone");
}

}  // namespace
}  // namespace lmdbio::sync
