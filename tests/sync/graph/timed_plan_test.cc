// Goal: the plan of an iteration whose times are known sends first what is needed first, in slices,
// and any plan that would gain nothing is the one in the order of arrival.
#include "lmdbio/sync/graph/timed_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/schedule/transfer_units.h"
#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::NamesOf;
using test::Random;
using test::TensorOf;

constexpr int64_t kMillisecondNs = 1'000'000;
constexpr int64_t kLayerCount = 8;

// A training of layers of equal size. The backward pass takes 2 ms a layer and submits the tensor
// of the last layer first. The forward pass takes 1 ms a layer and needs the tensor of the first
// layer first.
struct Training {
  std::vector<OrderedTensor> tensors;
  IterationFacts facts;
};

// bytes_per_ms  of the network
Training TrainingOf(uint64_t layer_bytes, uint64_t bytes_per_ms) {
  Training training;
  for (int64_t layer = kLayerCount - 1; layer >= 0; --layer) {
    training.tensors.push_back(
        {.tensor = TensorOf(fmt::format("{}", layer), static_cast<int64_t>(layer_bytes / 4))});
    training.facts.times.push_back({.ready_ns = 2 * (kLayerCount - 1 - layer) * kMillisecondNs,
                                    .due_ns = (2 * (kLayerCount - 1) + layer) * kMillisecondNs});
  }
  training.facts.length_ns = 3 * kLayerCount * kMillisecondNs;
  for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 16, uint64_t{1} << 24}) {
    const auto ns = static_cast<int64_t>(bytes * kMillisecondNs / bytes_per_ms);
    training.facts.samples.push_back({bytes, 20'000 + ns});
  }
  return training;
}

PlanOptions ByDue() {
  PlanOptions options;
  options.fusion.threshold_bytes = 1 << 20;
  options.order = PlanOptions::PlanOrder::kDue;
  return options;
}

// The number of elements of the tensor of a layer that a plan reduces before the first of another.
uint64_t CountBefore(const Plan& plan, const std::string& layer, const std::string& other) {
  uint64_t count = 0;
  for (const PlanStep& step : plan.steps()) {
    const Request& tensor = plan.buckets()[step.bucket].tensors.front();
    if (tensor.name == other) return count;
    if (tensor.name != layer) continue;
    count += step.count > 0 ? step.count : tensor.element_count();
  }
  return count;
}

TEST_CASE("What is needed first goes first, before the rest of what is ready", "[timed_plan]") {
  // Communication takes as long as computing.
  const Training training = TrainingOf(3 << 20, 1 << 20);
  PlanOptions options = ByDue();
  options.slice_bytes = 256 << 10;
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, options, 5);
  REQUIRE(made.obstacle.empty());
  REQUIRE(made.forecast);
  CHECK_FALSE(made.forecast->is_by_arrival);
  CHECK(made.plan.epoch() == 5);
  CHECK(made.forecast->step_count == made.plan.steps().size());
  CHECK(made.plan.steps().size() > 2 * kLayerCount);  // slices
  // The first layer is ready last. Others are begun, and still it is done before them.
  const uint64_t layer_count = training.tensors.front().tensor.element_count();
  CHECK(CountBefore(made.plan, "7", "0") > 0);
  CHECK(CountBefore(made.plan, "7", "0") < layer_count);
  CHECK(CountBefore(made.plan, "0", "none") == layer_count);
  INFO(made.forecast->Text());
  CHECK(made.forecast->bound_ns <= made.forecast->iteration_ns);
  CHECK(10 * made.forecast->iteration_ns < 9 * made.forecast->arrival_ns);
  // By itself it finds slices that cost fewer calls.
  const TimedPlan chosen = MakeTimedPlan(training.tensors, training.facts, ByDue(), 5);
  REQUIRE(chosen.forecast);
  CHECK(chosen.forecast->iteration_ns < made.forecast->iteration_ns);
  CHECK(100 * chosen.forecast->iteration_ns < 105 * chosen.forecast->bound_ns);
}

TEST_CASE("Where the network is fast, the order of arrival stays", "[timed_plan]") {
  const Training training = TrainingOf(3 << 20, 100 << 20);
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, ByDue(), 1);
  REQUIRE(made.forecast);
  CHECK(made.forecast->is_by_arrival);
  CHECK(made.forecast->iteration_ns == made.forecast->arrival_ns);
  const Plan by_arrival = Plan::FromOrder(training.tensors, ByDue(), 1);
  CHECK(made.plan.digest() == by_arrival.digest());
  CHECK(made.forecast->step_count == by_arrival.steps().size());
  CHECK(made.forecast->Text().ends_with(", by arrival"));
}

TEST_CASE("A program that waits for all tensors at once has a plan by arrival", "[timed_plan]") {
  Training training = TrainingOf(3 << 20, 1 << 20);
  for (TensorTimes& times : training.facts.times) {
    times.due_ns = training.facts.times.back().ready_ns;
  }
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, ByDue(), 1);
  REQUIRE(made.forecast);
  CHECK(made.forecast->is_by_arrival);
}

// All layers are ready at once. Layer 0 is needed then, and the others much later.
TEST_CASE("The buckets of the order of arrival do, unless smaller ones save a percent",
          "[timed_plan]") {
  Training training = TrainingOf(256 << 10, 100 << 10);
  PlanOptions options = ByDue();
  options.fusion.threshold_bytes = 512 << 10;
  int64_t due_ns = 160 * kMillisecondNs;
  for (TensorTimes& times : training.facts.times) {
    times = {.ready_ns = 0, .due_ns = due_ns};
    due_ns -= 20 * kMillisecondNs;
  }
  training.facts.times.back().due_ns = 0;
  // A layer takes 2.58 ms. That is what layer 0 alone saves beside a bucket of two.
  const auto bucket_count_of = [&](int64_t length_ns) {
    training.facts.length_ns = length_ns;
    const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, options, 1);
    REQUIRE(made.forecast);
    CHECK_FALSE(made.forecast->is_by_arrival);
    return made.plan.buckets().size();
  };
  CHECK(bucket_count_of(270 * kMillisecondNs) == 4);
  CHECK(bucket_count_of(240 * kMillisecondNs) == 8);
  options.batch_bytes = 256 << 10;
  CHECK(bucket_count_of(270 * kMillisecondNs) == 8);
}

TEST_CASE("Without times, without a model and with tensor groups a plan says why", "[timed_plan]") {
  const Training training = TrainingOf(3 << 20, 1 << 20);
  const auto check = [&](const Training& one, const std::string& words) {
    const TimedPlan made = MakeTimedPlan(one.tensors, one.facts, ByDue(), 1);
    INFO(made.obstacle);
    CHECK(made.obstacle.find(words) != std::string::npos);
    CHECK_FALSE(made.forecast);
    CHECK(made.plan.digest() == Plan::FromOrder(one.tensors, ByDue(), 1).digest());
  };
  Training wrong = training;
  wrong.facts.times.clear();
  check(wrong, "the times of the iterations differ too much");
  wrong = training;
  wrong.facts.samples.resize(1);
  check(wrong, "samples of 1 sizes");
  wrong.facts.samples.clear();
  check(wrong, "there are no times of calls");
  wrong = training;
  wrong.tensors[1].tensor.group = "a group";
  check(wrong, "tensor group");
}

TEST_CASE("The windows of the paper are another order of the same tensors", "[timed_plan]") {
  const Training training = TrainingOf(3 << 20, 1 << 20);
  PlanOptions options = ByDue();
  options.order = PlanOptions::PlanOrder::kBins;
  const TimedPlan bins = MakeTimedPlan(training.tensors, training.facts, options, 1);
  const TimedPlan due = MakeTimedPlan(training.tensors, training.facts, ByDue(), 1);
  REQUIRE(bins.forecast);
  CHECK(bins.plan.digest() != due.plan.digest());
  CHECK(bins.forecast->bound_ns == due.forecast->bound_ns);
  CHECK(bins.forecast->iteration_ns >= due.forecast->iteration_ns);
}

PlanOptions InHalves() {
  PlanOptions options;
  options.fusion.threshold_bytes = 1 << 20;
  options.order = PlanOptions::PlanOrder::kSplit;
  return options;
}

// The tensors of the steps of one half, with the first element of each slice.
std::string NamesOfHalf(const Plan& plan, PlanStep::StepHalf half) {
  std::string names;
  for (const PlanStep& step : plan.steps()) {
    if (step.half != half) continue;
    const std::string& name = plan.buckets()[step.bucket].tensors.front().name;
    names += step.is_slice() ? fmt::format("{}:{} ", name, step.begin) : name + " ";
  }
  return names;
}

TEST_CASE("A plan in halves reduces by arrival, and gathers what is needed first",
          "[timed_plan][split]") {
  using enum PlanStep::StepHalf;
  Training training = TrainingOf(3 << 20, 1 << 20);
  training.facts.samples.clear();  // it needs no model
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, InHalves(), 5);
  CHECK(made.plan.epoch() == 5);
  CHECK(made.obstacle.empty());
  CHECK_FALSE(made.forecast);
  CHECK(made.Text() == "in halves: 8 steps reduce, 8 gather; nothing is predicted");
  CHECK(NamesOfHalf(made.plan, kReduce) == "7 6 5 4 3 2 1 0 ");
  CHECK(NamesOfHalf(made.plan, kGather) == "0 1 2 3 4 5 6 7 ");
  CHECK(made.plan.steps()[7].half == kReduce);  // all of them are reduced first
  std::swap(training.facts.times[2].due_ns, training.facts.times[5].due_ns);
  const TimedPlan other = MakeTimedPlan(training.tensors, training.facts, InHalves(), 5);
  CHECK(NamesOfHalf(other.plan, kReduce) == "7 6 5 4 3 2 1 0 ");
  CHECK(NamesOfHalf(other.plan, kGather) == "0 1 5 3 4 2 6 7 ");
}

TEST_CASE("Without times a plan in halves gathers first what was reduced last",
          "[timed_plan][split]") {
  using enum PlanStep::StepHalf;
  Training training = TrainingOf(3 << 20, 1 << 20);
  training.tensors.resize(2);
  training.facts.times.clear();
  PlanOptions options = InHalves();
  options.slice_bytes = 2 << 20;
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, options, 1);
  CHECK(made.is_split);
  CHECK(NamesOfHalf(made.plan, kReduce) == "7:0 7:524288 6:0 6:524288 ");
  CHECK(NamesOfHalf(made.plan, kGather) == "6:0 6:524288 7:0 7:524288 ");
}

TEST_CASE("What is no reduction on the host is no half", "[timed_plan][split]") {
  using enum PlanStep::StepHalf;
  Training training = TrainingOf(3 << 20, 1 << 20);
  training.tensors[1].tensor.operation = Operation::kBroadcast;
  training.tensors[2].tensor.memory = MemoryKind::kDevice;
  const TimedPlan made = MakeTimedPlan(training.tensors, training.facts, InHalves(), 1);
  CHECK(NamesOfHalf(made.plan, kBoth) == "6 5 ");
  CHECK(NamesOfHalf(made.plan, kReduce) == "7 4 3 2 1 0 ");
}

// It would not end: b is submitted when a is done, and a is gathered when b is reduced.
TEST_CASE("A tensor that needs another one, and a tensor group, permit no halves",
          "[timed_plan][split]") {
  const Training training = TrainingOf(3 << 20, 1 << 20);
  Training needing = training;
  needing.tensors[3].needs_up_to = 0;
  Training grouped = training;
  grouped.tensors[1].tensor.group = "a group";
  const TimedPlan first = MakeTimedPlan(needing.tensors, needing.facts, InHalves(), 1);
  CHECK(first.Text() == "is by arrival: tensor '4' needs another one of its iteration");
  CHECK(first.plan.digest() == Plan::FromOrder(needing.tensors, InHalves(), 1).digest());
  const TimedPlan second = MakeTimedPlan(grouped.tensors, grouped.facts, InHalves(), 1);
  CHECK(second.Text() == "is by arrival: a tensor group stays together where it is");
}

// Types, kinds and operations of all sorts, any times: a plan holds each tensor once, with all of
// its elements, and behind those that it needs.
TEST_CASE("Random iterations become legal plans, the same on every rank", "[timed_plan]") {
  ForSeeds(300, [](uint64_t seed) -> std::string {
    Random random(seed);
    const test::RandomGraph graph =
        test::MakeRandomGraph(random, 3 + static_cast<uint32_t>(random.Below(30)), 4);
    const auto order = OrderTensors(graph.graph);
    if (!order) return order.error().message();
    IterationFacts facts;
    for (size_t i = 0; i < order->size(); ++i) {
      const auto ready_ns = static_cast<int64_t>(random.Below(1'000'000));
      facts.times.push_back({ready_ns, ready_ns + static_cast<int64_t>(random.Below(1'000'000))});
    }
    facts.length_ns = static_cast<int64_t>(random.Below(2'000'000));
    facts.samples = {{64, 1 + static_cast<int64_t>(random.Below(1000))},
                     {1 << 20, 2000 + static_cast<int64_t>(random.Below(10'000'000))}};
    PlanOptions options = ByDue();
    if (random.Below(3) == 0) options.order = PlanOptions::PlanOrder::kBins;
    if (random.Below(4) == 0) options.order = PlanOptions::PlanOrder::kSplit;
    if (random.Below(2) == 0) options.batch_bytes = 64 * (1 + random.Below(100));
    if (random.Below(2) == 0) options.slice_bytes = 64 * (1 + random.Below(50));
    const TimedPlan made = MakeTimedPlan(*order, facts, options, seed);
    const TimedPlan again = MakeTimedPlan(*order, facts, options, seed);
    if (made.plan.digest() != again.plan.digest()) return "another plan from the same facts";
    return test::ProblemOf(made.plan, graph);
  });
}

}  // namespace
}  // namespace lmdbio::sync
