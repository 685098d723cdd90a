// Goal: a driver makes the slices of several tensors in the order of the plan, each once, and
// completes the tensors that were begun before it leaves the plan.
//
// Method: a job of one rank whose collectives add 10 to each value of a call, or 4 and 6 in its
// halves, so that the values of a tensor tell how often each was reduced.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/engine/plan_driver.h"
#include "lmdbio/trace/timeline.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/sync/engine/engine_parts.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

using Clock = PlanDriver::Clock;
using PlanStepOutcome = PlanDriver::PlanStepOutcome;
using Names = std::vector<std::string>;

constexpr auto kSlicePatience = 100ms;

class AddingCollectives final : public ForwardedCollectives {
 public:
  AddingCollectives() : ForwardedCollectives(SoloCollectives()) {}

  size_t peer_declines = ~size_t{0};  // the number of a call
  std::vector<size_t> counts;         // [calls] values
  std::vector<uint64_t> digests;      // [calls]

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction&) override {
    return Add(tag, values, 10);
  }
  Result<CallOutcome> ReduceToParts(const CallTag& tag, const Values& values,
                                    const Reduction&) override {
    return Add(tag, values, 4);
  }
  Result<CallOutcome> GatherParts(const CallTag& tag, const Values& values) override {
    return Add(tag, values, 6);
  }

 private:
  Result<CallOutcome> Add(const CallTag& tag, const Values& values, float added) {
    digests.push_back(tag.digest);
    counts.push_back(values.count);
    if (tag.is_declined || counts.size() - 1 == peer_declines) return CallOutcome::kDeclined;
    auto* const numbers = reinterpret_cast<float*>(values.data);
    for (size_t i = 0; i < values.count; ++i) numbers[i] += added;
    return CallOutcome::kDone;
  }
};

Bucket BucketOf(const std::string& names, int64_t count) {
  Bucket bucket;
  for (const char name : names) {
    bucket.tensors.push_back(AllReduceOf(std::string(1, name), nullptr, nullptr, count).request);
  }
  return bucket;
}

// Tensors a and c of 10 values in slices, b of one.
//
//   step     0        1        2    3         4
//   slice    a[0..3]  c[0..4]  b    a[4..9]   c[5..9]
Plan AlternatingPlan() {
  return Plan::FromSteps({BucketOf("a", 10), BucketOf("b", 1), BucketOf("c", 10)},
                         {{0, 0, 4}, {2, 0, 5}, {1, 0, 0}, {0, 4, 6}, {2, 5, 5}}, 1);
}

// Tensors a, in slices, and b are reduced in halves, c at once.
//
//   step     0        1        2    3    4    5        6
//   slice    a[0..3]  a[4..9]  b    c    b    a[0..3]  a[4..9]
//   half     reduce   reduce   red. both gat. gather   gather
Plan PlanInHalves() {
  using enum PlanStep::StepHalf;
  return Plan::FromSteps({BucketOf("a", 10), BucketOf("b", 1), BucketOf("c", 1)},
                         {{0, 0, 4, kReduce},
                          {0, 4, 6, kReduce},
                          {1, 0, 0, kReduce},
                          {2, 0, 0, kBoth},
                          {1, 0, 0, kGather},
                          {0, 0, 4, kGather},
                          {0, 4, 6, kGather}},
                         1);
}

struct SliceDriverSetup {
  SliceDriverSetup() : parts(std::make_unique<AddingCollectives>()) {}

  AddingCollectives& calls() { return static_cast<AddingCollectives&>(*parts.collectives); }
  TaskPtr Submit(const std::string& name, size_t count) {
    TaskPtr task = parts.Submit(name, count);
    driver.Submit(task->submission.request);
    return task;
  }
  PlanStepOutcome Step(Clock::duration later = {}) {
    const auto outcome = driver.Step(Clock::now() + later);
    REQUIRE(outcome);
    return *outcome;
  }
  // Whether the n-th submission has these values.
  bool Holds(size_t submission, std::vector<float> values) const {
    return *parts.values[submission] == values;
  }

  test::EnginePartsOfOneRank parts;
  PlanDriver driver{{parts.transport, parts.health, *parts.collectives, parts.executor,
                     *parts.queue, parts.tracer, parts.tasks, parts.counters.current()},
                    kSlicePatience};
};

Names NamesOf(const std::vector<Request>& requests) {
  Names names;
  for (const Request& request : requests) names.push_back(request.name);
  return names;
}

Names NamesOf(const std::vector<Response>& responses) {
  Names names;
  for (const Response& response : responses) names.push_back(response.tensors[0].name);
  return names;
}

std::vector<float> Tens(size_t reduced, size_t left) {
  std::vector<float> values(reduced, 11.0F);
  values.resize(reduced + left, 1.0F);
  return values;
}

TEST_CASE("A tensor is done with its last slice, and each slice is a call",
          "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  const TaskPtr a = setup.Submit("a", 10);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK(setup.Holds(0, Tens(4, 6)));
  REQUIRE(setup.Step() == PlanStepOutcome::kIdle);  // c is missing, and a must wait for it
  REQUIRE(setup.driver.missing_count() == 1);
  const TaskPtr c = setup.Submit("c", 10);
  const TaskPtr b = setup.Submit("b", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK(b->is_done.load());
  CHECK_FALSE(a->is_done.load());
  CHECK(setup.driver.missing_count() == 0);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK(a->is_done.load());
  CHECK_FALSE(c->is_done.load());
  const TaskPtr again = setup.Submit("a", 10);  // of the next iteration
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK(c->is_done.load());
  CHECK(setup.Holds(0, Tens(10, 0)));
  CHECK(setup.Holds(1, Tens(10, 0)));
  CHECK(setup.calls().counts == std::vector<size_t>{4, 5, 1, 6, 5});
  CHECK(setup.parts.counters.current().cycle_count == 3);
  CHECK(setup.parts.counters.Read().tensor_count == 3);
  CHECK(setup.parts.executor.counters().collective_count == 5);
  CHECK(setup.parts.executor.counters().collective_bytes == 21 * sizeof(float));
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK_FALSE(again->is_done.load());
  CHECK(std::set(setup.calls().digests.begin(), setup.calls().digests.end()).size() == 6);
}

TEST_CASE("A tensor is agreed on once, and each of its slices is recorded",
          "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  setup.Submit("a", 10);
  setup.Submit("b", 1);
  setup.Submit("c", 10);
  for (int step = 0; step < 5; ++step) REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const auto count_of = [&](const std::string& event, const std::string& name) {
    return std::ranges::count_if(setup.parts.tracer.Lines(), [&](const std::string& line) {
      return line.find(event) != std::string::npos && line.find(name) != std::string::npos;
    });
  };
  for (const std::string name : {"a", "b", "c"}) {
    CAPTURE(name);
    CHECK(count_of("agreed", "'" + name + "'") == 1);
    CHECK(count_of("begun", "'" + name + "'") == (name == "b" ? 1 : 2));
    CHECK(count_of("done", "'" + name + "'") == 1);
  }
}

TEST_CASE("A tensor is done when it is gathered", "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(PlanInHalves(), {});
  for (int iteration = 0; iteration < 2; ++iteration) {
    const TaskPtr a = setup.Submit("a", 10);
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    REQUIRE(setup.Step() == PlanStepOutcome::kIdle);
    const TaskPtr b = setup.Submit("b", 1);
    const TaskPtr c = setup.Submit("c", 1);
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    CHECK_FALSE(b->is_done.load());
    CHECK(c->is_done.load());
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    CHECK(b->is_done.load());
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    CHECK_FALSE(a->is_done.load());
    REQUIRE(setup.Step() == PlanStepOutcome::kMade);
    CHECK(a->is_done.load());
    const size_t before = 3 * static_cast<size_t>(iteration);
    CHECK(setup.Holds(before, Tens(10, 0)));
    CHECK(setup.Holds(before + 1, Tens(1, 0)));
    CHECK(setup.Holds(before + 2, Tens(1, 0)));
  }
  CHECK(setup.parts.counters.current().cycle_count == 6);
}

TEST_CASE("Parts are gathered after the plan was abandoned", "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(PlanInHalves(), {});
  const TaskPtr a = setup.Submit("a", 10);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const TaskPtr b = setup.Submit("b", 1);
  setup.Submit("x", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);  // a is begun
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);  // declined at b
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK_FALSE(a->is_done.load());
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  CHECK(a->is_done.load());
  CHECK_FALSE(b->is_done.load());
  const AbandonedPlan abandoned = setup.driver.TakeAbandoned();
  CHECK(NamesOf(abandoned.unsent) == Names{"x", "b"});
  CHECK(NamesOf(abandoned.done) == Names{"a"});
  CHECK(setup.Holds(0, Tens(10, 0)));
  CHECK(setup.Holds(1, Tens(0, 1)));
}

TEST_CASE("A rank cannot decline to gather", "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(PlanInHalves(), {});
  setup.Submit("a", 10);
  setup.Submit("b", 1);
  setup.Submit("c", 1);
  setup.calls().peer_declines = 5;
  for (int step = 0; step < 5; ++step) REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const auto outcome = setup.driver.Step(Clock::now());
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().message() == "tensor 'a': the ranks made different steps");
}

TEST_CASE("A rank that leaves the plan first makes the slices up to the next bucket",
          "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(
      Plan::FromSteps({BucketOf("a", 10), BucketOf("b", 1)}, {{0, 0, 4}, {0, 4, 6}, {1, 0, 0}}, 1),
      {});
  const TaskPtr a = setup.Submit("a", 10);
  setup.Submit("b", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  setup.Submit("x", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);  // no decline
  CHECK(a->is_done.load());
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  const AbandonedPlan abandoned = setup.driver.TakeAbandoned();
  CHECK(NamesOf(abandoned.unsent) == Names{"x", "b"});
  CHECK(NamesOf(abandoned.done) == Names{"a"});
  CHECK(setup.Holds(0, Tens(10, 0)));
  CHECK(setup.Holds(1, Tens(0, 1)));
}

TEST_CASE("The slices of begun tensors are made after the plan was abandoned",
          "[sync][plan_driver][steps]") {
  const bool is_own = GENERATE(true, false);
  CAPTURE(is_own);
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  const TaskPtr a = setup.Submit("a", 10);
  const TaskPtr c = setup.Submit("c", 10);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const TaskPtr b = setup.Submit("b", 1);
  if (is_own) {
    setup.Submit("x", 1);
  } else {
    setup.calls().peer_declines = 2;
  }
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);  // declined at b
  setup.parts.transport.is_called = true;           // by a peer that begins a round
  setup.Submit("y", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  CHECK(a->is_done.load());
  const TaskPtr again = setup.Submit("a", 10);
  CHECK_FALSE(c->is_done.load());
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  CHECK(c->is_done.load());
  CHECK_FALSE(b->is_done.load());
  CHECK_FALSE(again->is_done.load());
  CHECK(setup.parts.transport.is_called);
  const AbandonedPlan abandoned = setup.driver.TakeAbandoned();
  CHECK(NamesOf(abandoned.unsent) == (is_own ? Names{"x", "y", "a", "b"} : Names{"y", "a", "b"}));
  CHECK(NamesOf(abandoned.done) == Names{"a", "c"});
  CHECK(setup.Holds(0, Tens(10, 0)));
  CHECK(setup.Holds(1, Tens(10, 0)));
  CHECK(setup.Holds(2, Tens(0, 1)));
  CHECK(setup.parts.counters.current().plan_end_count == 1);
  const std::vector<uint64_t>& digests = setup.calls().digests;
  CHECK(std::set(digests.begin(), digests.end()).size() == 5);
}

TEST_CASE("A plan that lacks a tensor is abandoned although another one is half reduced",
          "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  const TaskPtr a = setup.Submit("a", 10);
  REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const TaskPtr b = setup.Submit("b", 1);
  setup.parts.queue->BeginWait();
  REQUIRE(setup.Step(kSlicePatience / 2) == PlanStepOutcome::kIdle);
  REQUIRE(setup.Step(2 * kSlicePatience) == PlanStepOutcome::kMade);
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  CHECK(a->is_done.load());
  const AbandonedPlan abandoned = setup.driver.TakeAbandoned();
  CHECK(NamesOf(abandoned.unsent) == Names{"b"});
  CHECK(NamesOf(abandoned.done) == Names{"a"});
}

TEST_CASE("Only the tensors of the unfinished iteration count as done",
          "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  for (int iteration = 0; iteration < 2; ++iteration) {
    setup.Submit("a", 10);
    setup.Submit("b", 1);
    setup.Submit("c", 10);
    for (int step = 0; step < 5; ++step) REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  }
  setup.Submit("x", 1);
  REQUIRE(setup.Step() == PlanStepOutcome::kAbandoned);
  CHECK(setup.driver.TakeAbandoned().done.empty());
}

TEST_CASE("A slice that a rank skips is an error of all", "[sync][plan_driver][steps]") {
  SliceDriverSetup setup;
  setup.driver.Follow(AlternatingPlan(), {});
  setup.Submit("a", 10);
  setup.Submit("b", 1);
  setup.Submit("c", 10);
  setup.calls().peer_declines = 3;
  for (int step = 0; step < 3; ++step) REQUIRE(setup.Step() == PlanStepOutcome::kMade);
  const auto outcome = setup.driver.Step(Clock::now());
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::kInternal);
  CHECK(outcome.error().message() == "tensor 'a': the ranks made different steps");
}

TEST_CASE("A slice belongs to the bucket of its tensor in a timeline",
          "[sync][plan_driver][steps]") {
  const test::TempDir dir;
  auto timeline = trace::Timeline::Open({.path = (dir.path() / "timeline").string()});
  REQUIRE(timeline);
  SyncTracer tracer(std::move(*timeline));
  Task task;
  Task* const tasks[] = {&task};
  const auto reduce = [&](uint64_t bytes) {
    tracer.Transferring(tasks, bytes);
    tracer.Transferred(bytes);
    tracer.Unpacked(tasks);
  };
  const uint64_t first = tracer.Agreed(tasks);
  reduce(100);
  const uint64_t second = tracer.Agreed(tasks);
  reduce(200);
  tracer.Resumed(first);
  reduce(30);
  REQUIRE(tracer.Close());
  std::ifstream file(dir.path() / "timeline.0");
  std::vector<std::pair<uint64_t, uint64_t>> buckets;  // number and bytes
  for (const auto& event : nlohmann::json::parse(file)) {
    if (event.value("name", "") != "bucket") continue;
    buckets.emplace_back(event["args"]["number"], event["args"]["bytes"]);
  }
  CHECK(first != second);
  CHECK(buckets ==
        std::vector<std::pair<uint64_t, uint64_t>>{{first, 100}, {second, 200}, {first, 30}});
}

}  // namespace
}  // namespace lmdbio::sync
