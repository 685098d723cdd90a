// Goal: the steps of a plan reduce each element of each tensor once, and only large tensors of the
// host are cut.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/graph/plan.h"
#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;
using test::TensorOf;

Bucket BucketOf(const Request& tensor) { return {.tensors = {tensor}}; }

Request Typed(int64_t count, DataType type) {
  Request tensor = TensorOf("t", count);
  tensor.type = type;
  return tensor;
}

// Whether the call ends the process by LMDBIO_CHECK.
bool IsRefused(const std::function<void()>& call) {
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
    std::signal(SIGABRT, SIG_DFL);
    call();
    ::_exit(0);
  }
  int how = 0;
  REQUIRE(::waitpid(child, &how, 0) == child);
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

TEST_CASE("Slices are whole lines, and at most 512", "[control][plan][steps]") {
  struct Case {
    DataType type;
    int64_t count;
    uint64_t slice_bytes, expected;
  };
  const auto one = GENERATE(Case{DataType::kFloat32, 65, 0, 0},         // no tensor is cut
                            Case{DataType::kFloat32, 64, 256, 0},       // no larger than a slice
                            Case{DataType::kFloat32, 65, 256, 64},      // one element more
                            Case{DataType::kFloat64, 65, 256, 32},      //
                            Case{DataType::kFloat16, 1000, 256, 128},   //
                            Case{DataType::kFloat32, 65, 255, 64},      // whole lines
                            Case{DataType::kFloat32, 65, 193, 64},      //
                            Case{DataType::kFloat32, 64, 193, 0},       //
                            Case{DataType::kFloat32, 17, 1, 16},        //
                            Case{DataType::kFloat32, 16 * 512, 1, 16},  // 512 slices
                            Case{DataType::kFloat32, 16 * 512 + 1, 1, 32},  // more
                            Case{DataType::kInt64, 0, 1, 0},                // nothing to cut
                            Case{DataType::kFloat32, 1 << 20, uint64_t{1} << 44, 0},  //
                            Case{DataType::kFloat32, 1 << 20, uint64_t{1} << 20, 1 << 18});
  CAPTURE(one.count, one.slice_bytes);
  CHECK(SliceElementsOf(BucketOf(Typed(one.count, one.type)), one.slice_bytes) == one.expected);
}

TEST_CASE("Only a kAllReduce that is alone, and on the host, is cut", "[control][plan][steps]") {
  const Request tensor = TensorOf("t", 1000);
  CHECK(SliceElementsOf(BucketOf(tensor), 64) == 16);
  Request on_device = tensor;
  on_device.memory = MemoryKind::kDevice;
  CHECK(SliceElementsOf(BucketOf(on_device), 64) == 0);
  for (const Operation operation : {Operation::kBroadcast, Operation::kAllGather,
                                    Operation::kReduceScatter, Operation::kBarrier}) {
    Request other = tensor;
    other.operation = operation;
    CHECK(SliceElementsOf(BucketOf(other), 64) == 0);
  }
  CHECK(SliceElementsOf({.tensors = {tensor, TensorOf("u", 1000)}}, 64) == 0);
}

std::vector<OrderedTensor> OrderOf(const std::vector<Request>& tensors) {
  std::vector<OrderedTensor> order;
  for (const Request& tensor : tensors) {
    OrderedTensor& one = order.emplace_back();
    one.tensor = tensor;
    one.needs_up_to = -1;
  }
  return order;
}

TEST_CASE("The slices of a bucket follow each other in the order of the buckets",
          "[control][plan][steps]") {
  PlanOptions options;
  options.fusion.threshold_bytes = 256;
  const auto order =
      OrderOf({TensorOf("a", 16), TensorOf("b", 16), TensorOf("c", 100), TensorOf("d", 64)});
  using Steps = std::vector<PlanStep>;
  const Plan whole = Plan::FromOrder(order, options, 1);
  CHECK(whole.steps() == Steps{{0, 0, 0}, {1, 0, 0}, {2, 0, 0}});
  options.slice_bytes = 128;  // also of what is smaller than a bucket
  const Plan plan = Plan::FromOrder(order, options, 1);
  const Steps expected = {{0, 0, 0},  {1, 0, 32}, {1, 32, 32}, {1, 64, 32},
                          {1, 96, 4}, {2, 0, 32}, {2, 32, 32}};
  CHECK(plan.steps() == expected);
  CHECK(plan.steps()[0].begins_bucket());
  CHECK(plan.steps()[1].begins_bucket());
  CHECK_FALSE(plan.steps()[2].begins_bucket());
  std::vector<bool> completes;
  for (const PlanStep& step : plan.steps()) completes.push_back(plan.Completes(step));
  CHECK(completes == std::vector<bool>{true, false, false, false, true, false, true});
}

TEST_CASE("Steps that do not reduce each element once are refused", "[control][plan][steps]") {
  const std::vector<Bucket> buckets = {BucketOf(TensorOf("a", 10)),
                                       {.tensors = {TensorOf("b", 4), TensorOf("c", 4)}}};
  const auto refuses = [&](std::vector<PlanStep> steps) {
    return IsRefused([&] { Plan::FromSteps(buckets, steps, 1); });
  };
  CHECK_FALSE(refuses({{0, 0, 4}, {1, 0, 0}, {0, 4, 6}}));
  CHECK_FALSE(refuses({{1, 0, 0}, {0, 0, 10}}));
  CHECK(refuses({{0, 0, 0}}));                          // bucket 1 is missing
  CHECK(refuses({{1, 0, 0}}));                          // bucket 0 is
  CHECK(refuses({{0, 0, 0}, {1, 0, 0}, {1, 0, 0}}));    // twice
  CHECK(refuses({{0, 0, 0}, {0, 0, 10}, {1, 0, 0}}));   //
  CHECK(refuses({{0, 0, 4}, {0, 0, 0}, {1, 0, 0}}));    // a slice, then all
  CHECK(refuses({{0, 0, 10}, {0, 10, 0}, {1, 0, 0}}));  //
  CHECK(refuses({{0, 0, 4}, {0, 4, 5}, {1, 0, 0}}));    // too few elements
  CHECK(refuses({{0, 0, 4}, {0, 4, 7}, {1, 0, 0}}));    // too many
  CHECK(refuses({{0, 0, 4}, {0, 4, ~uint64_t{3}}, {0, 0, 10}, {1, 0, 0}}));
  CHECK(refuses({{0, 0, 4}, {0, 5, 5}, {1, 0, 0}}));  // a gap
  CHECK(refuses({{0, 0, 4}, {0, 3, 7}, {1, 0, 0}}));  // an overlap
  CHECK(refuses({{0, 4, 6}, {0, 0, 4}, {1, 0, 0}}));  // not ascending
  CHECK(refuses({{0, 0, 0}, {1, 0, 4}}));             // of two tensors
  CHECK(refuses({{0, 0, 0}, {1, 0, 0}, {2, 0, 0}}));  // no such bucket
  Request on_device = TensorOf("a", 10);
  on_device.memory = MemoryKind::kDevice;
  CHECK(IsRefused([&] { Plan::FromSteps({BucketOf(on_device)}, {{0, 0, 4}, {0, 4, 6}}, 1); }));
  CHECK(IsRefused([&] { Plan::FromSteps({BucketOf(TensorOf("a", 0))}, {{0, 0, 1}}, 1); }));
}

TEST_CASE("Halves that do not reduce each element once are refused", "[control][plan][steps]") {
  using enum PlanStep::StepHalf;
  const std::vector<Bucket> buckets = {BucketOf(TensorOf("a", 10)),
                                       {.tensors = {TensorOf("b", 4), TensorOf("c", 4)}}};
  const PlanStep a = {0, 0, 0, kReduce}, a_gather = {0, 0, 0, kGather};
  const PlanStep a_first = {0, 0, 4, kReduce}, a_rest = {0, 4, 6, kReduce};
  const PlanStep a_first_gather = {0, 0, 4, kGather}, a_rest_gather = {0, 4, 6, kGather};
  const PlanStep b = {1, 0, 0, kReduce}, b_gather = {1, 0, 0, kGather}, b_both = {1, 0, 0, kBoth};
  const auto refuses = [&](const std::vector<PlanStep>& steps) {
    return IsRefused([&] { Plan::FromSteps(buckets, steps, 1); });
  };
  CHECK_FALSE(refuses({a, b, a_gather, b_gather}));
  CHECK_FALSE(refuses({a, b, b_gather, a_gather}));
  CHECK_FALSE(refuses({a_first, b_both, a_rest, a_first_gather, a_rest_gather}));
  CHECK(refuses({a, b_both}));                                               // never gathered
  CHECK(refuses({a_gather, b_both}));                                        // never reduced
  CHECK(refuses({a_gather, a, b_both}));                                     // in the wrong order
  CHECK(refuses({a, a_gather, a_gather, b_both}));                           // twice
  CHECK(refuses({a, b, a_gather, b_both, b_gather}));                        //
  CHECK(refuses({b_both, {0, 0, 0, kBoth}, a_gather}));                      //
  CHECK(refuses({a, a_first_gather, a_rest_gather, b_both}));                // cut in another way
  CHECK(refuses({a_first, a_rest, a_gather, b_both}));                       //
  CHECK(refuses({a_first, a_rest, a_first_gather, b_both}));                 // in part
  CHECK(refuses({a_first, a_first_gather, a_rest, a_rest_gather, b_both}));  // before the rest
  CHECK(refuses({a_first, {0, 4, 6, kBoth}, a_first_gather, a_rest_gather, b_both}));
  for (const bool is_on_device : {true, false}) {
    Request other = TensorOf("a", 10);
    if (is_on_device) other.memory = MemoryKind::kDevice;
    if (!is_on_device) other.operation = Operation::kBroadcast;
    CHECK(IsRefused([&] { Plan::FromSteps({BucketOf(other)}, {a, a_gather}, 1); }));
  }
}

TEST_CASE("A bucket in halves begins with its first half, and ends with the second one",
          "[control][plan][steps]") {
  using enum PlanStep::StepHalf;
  const Plan plan = Plan::FromSteps(
      {BucketOf(TensorOf("a", 10))},
      {{0, 0, 4, kReduce}, {0, 4, 6, kReduce}, {0, 0, 4, kGather}, {0, 4, 6, kGather}}, 1);
  std::vector<bool> begins, completes;
  for (const PlanStep& step : plan.steps()) {
    begins.push_back(step.begins_bucket());
    completes.push_back(plan.Completes(step));
  }
  CHECK(begins == std::vector<bool>{true, false, false, false});
  CHECK(completes == std::vector<bool>{false, false, false, true});
}

TEST_CASE("Plans of other steps have other digests", "[control][plan][steps]") {
  using enum PlanStep::StepHalf;
  const std::vector<Bucket> buckets = {BucketOf(TensorOf("a", 10)), BucketOf(TensorOf("b", 10))};
  const std::vector<std::vector<PlanStep>> cuts = {
      {{0, 0, 0}, {1, 0, 0}},
      {{1, 0, 0}, {0, 0, 0}},
      {{0, 0, 10}, {1, 0, 0}},
      {{0, 0, 5}, {0, 5, 5}, {1, 0, 0}},
      {{0, 0, 4}, {0, 4, 6}, {1, 0, 0}},
      {{0, 0, 5}, {1, 0, 0}, {0, 5, 5}},
      {{0, 0, 0, kReduce}, {1, 0, 0}, {0, 0, 0, kGather}},
      {{0, 0, 0, kReduce}, {0, 0, 0, kGather}, {1, 0, 0}},
      {{0, 0, 0}, {1, 0, 0, kReduce}, {1, 0, 0, kGather}},
  };
  std::set<uint64_t> digests;
  for (const auto& steps : cuts) {
    const uint64_t digest = Plan::FromSteps(buckets, steps, 7).digest();
    CHECK(Plan::FromSteps(buckets, steps, 7).digest() == digest);
    CHECK(digests.insert(digest).second);
    CHECK(digests.insert(Plan::FromSteps(buckets, steps, 8).digest()).second);
  }
}

TEST_CASE("Random plans reduce each element once, in slices of the right size",
          "[control][plan][steps]") {
  ForSeeds(3'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    std::vector<Request> tensors(random.Between(1, 8));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const uint64_t most = random.Below(3) == 0 ? 200'000 : 300;
      tensors[i] = TensorOf(fmt::format("t{}", i), static_cast<int64_t>(random.Below(most)));
      tensors[i].type = random.Below(2) == 0 ? DataType::kFloat32 : DataType::kFloat64;
    }
    PlanOptions options;
    options.fusion.threshold_bytes = random.Below(2000);
    options.slice_bytes = random.Below(4) == 0 ? 0 : random.Between(1, 3000);
    const Plan plan = Plan::FromOrder(OrderOf(tensors), options, seed);
    const uint64_t slice_bytes = (options.slice_bytes + 63) / 64 * 64;
    std::vector<uint64_t> ends(plan.buckets().size());
    std::vector<uint64_t> counts(plan.buckets().size());
    size_t last = 0;
    for (const PlanStep& step : plan.steps()) {
      if (step.bucket < last || step.begin != ends[step.bucket]) return "out of order";
      last = step.bucket;
      const Request& tensor = plan.buckets()[step.bucket].tensors[0];
      ends[step.bucket] += step.is_slice() ? step.count : tensor.element_count();
      const bool is_last = ends[step.bucket] == tensor.element_count();
      if (plan.Completes(step) != is_last) return "complete or not";
      if (++counts[step.bucket] > 512) return "too many slices";
      const uint64_t bytes = step.count * ElementBytes(tensor.type);
      if (!step.is_slice() || is_last) continue;
      if (bytes % 64 != 0) return "no whole lines";
      const bool may_be_larger = tensor.byte_count() > 512 * slice_bytes;
      if (may_be_larger ? bytes < slice_bytes : bytes != slice_bytes) return "another size";
    }
    for (size_t bucket = 0; bucket < ends.size(); ++bucket) {
      const Bucket& one = plan.buckets()[bucket];
      if (ends[bucket] != one.tensors[0].element_count()) return "elements are missing";
      const bool is_large = one.tensors.size() == 1 && options.slice_bytes > 0 &&
                            one.tensors[0].byte_count() > slice_bytes;
      if ((counts[bucket] > 1) != is_large) return "cut or not";
    }
    return "";
  });
}

}  // namespace
}  // namespace lmdbio::sync
