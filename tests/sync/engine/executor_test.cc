// Goal: memory in which a call may go on after it has failed is not freed; an average takes no pass
// over the values, neither before nor after the collective call.
#include "lmdbio/sync/engine/executor.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

// Every call fails. With `goes_on` it may still write to its memory.
class Failing : public Collectives {
 public:
  using CallResult = Result<CallOutcome>;
  bool goes_on = false;

  int rank() const override { return 0; }
  int size() const override { return 2; }
  CallResult AllReduce(const CallTag&, const Values&, const Reduction&) override { return Gone(); }
  CallResult ReduceScatter(const CallTag&, const Values&, std::byte*, std::span<const uint64_t>,
                           const Reduction&) override {
    return Gone();
  }
  CallResult AllGather(const CallTag&, Bytes, MutableBytes, std::span<const uint64_t>) override {
    return Gone();
  }
  CallResult Broadcast(const CallTag&, MutableBytes, int) override { return Gone(); }
  CallResult AllToAll(const CallTag&, Bytes, std::span<const uint64_t>, MutableBytes,
                      std::span<const uint64_t>) override {
    return Gone();
  }
  CallResult Barrier(const CallTag&) override { return Gone(); }
  bool writes_after_failure() const override { return goes_on; }
  void Stop(const Error&) override {}

 private:
  static CallResult Gone() { return Fail(ErrorCode::kPeerFailed, "gone"); }
};

constexpr float kReduced = 7;
constexpr float kHalfReduced = 3;

// Records the reductions and values of its calls. The result of every reduction is kReduced, and
// that of its first half kHalfReduced. With `declines` it writes nothing.
class Recording final : public Failing {
 public:
  bool declines = false;
  std::chrono::milliseconds delay{0};  // of a reduction
  std::vector<Reduction> reductions;
  std::vector<float> brought;  // to the last call

  CallResult AllReduce(const CallTag&, const Values& values, const Reduction& reduction) override {
    return Reduce(values, values.data, values.count, reduction);
  }
  CallResult ReduceScatter(const CallTag&, const Values& input, std::byte* output,
                           std::span<const uint64_t> counts, const Reduction& reduction) override {
    return Reduce(input, output, counts[0], reduction);
  }

  CallResult ReduceToParts(const CallTag&, const Values& values,
                           const Reduction& reduction) override {
    return Reduce(values, values.data, values.count, reduction, kHalfReduced);
  }
  CallResult GatherParts(const CallTag&, const Values& values) override {
    return Record(values, values.data, values.count, kReduced);
  }

 private:
  CallResult Reduce(const Values& values, std::byte* output, size_t count,
                    const Reduction& reduction, float result = kReduced) {
    reductions.push_back(reduction);
    return Record(values, output, count, result);
  }
  CallResult Record(const Values& values, std::byte* output, size_t count, float result) {
    brought.resize(values.count);
    std::memcpy(brought.data(), values.data, values.count * sizeof(float));
    if (declines) return CallOutcome::kDeclined;
    std::this_thread::sleep_for(delay);
    const std::vector<float> reduced(count, result);
    std::memcpy(output, reduced.data(), count * sizeof(float));
    return CallOutcome::kDone;
  }
};

Request RequestOf(Operation operation, std::string name) {
  Request request;
  request.name = std::move(name);
  request.operation = operation;
  request.shape = {4};
  request.root = 1;
  return request;
}

// A call that fails, of tensors of which this rank has the first `task_count`.
void Perform(Executor& executor, Operation operation, size_t tensor_count, size_t task_count) {
  Response response;
  std::vector<float> values(16, 1.0F);
  std::vector<Task> tasks(tensor_count);
  std::vector<Task*> given;
  for (size_t i = 0; i < tensor_count; ++i) {
    response.tensors.push_back(RequestOf(operation, "t" + std::to_string(i)));
    tasks[i].submission.request = response.tensors.back();
    tasks[i].submission.input = reinterpret_cast<const std::byte*>(&values[4 * i]);
    tasks[i].submission.output = reinterpret_cast<std::byte*>(&values[4 * i]);
    given.push_back(i < task_count ? &tasks[i] : nullptr);
  }
  response.rows = operation == Operation::kAllToAll ? std::vector<int64_t>{2, 2, 2, 2}
                                                    : std::vector<int64_t>{4, 4};
  const auto outcome = executor.Perform(response, given, {.digest = 1});
  REQUIRE_FALSE(outcome);
}

TEST_CASE("Executor keeps memory in which a call that has failed goes on", "[sync][executor]") {
  Failing collectives;
  collectives.goes_on = GENERATE(true, false);
  const size_t one = collectives.goes_on ? 1 : 0;
  SyncTracer witness(nullptr);
  const size_t before = KeptCount();
  {
    Executor executor(collectives, witness, 1000, 1000);
    Perform(executor, Operation::kAllGather, 1, 1);
    CHECK(KeptCount() == before + one);
    Perform(executor, Operation::kAllToAll, 1, 1);
    CHECK(KeptCount() == before + 2 * one);
    Perform(executor, Operation::kBroadcast, 1, 0);
    CHECK(KeptCount() == before + 3 * one);
    Perform(executor, Operation::kAllReduce, 1, 0);
    CHECK(KeptCount() == before + 4 * one);
    Perform(executor, Operation::kReduceScatter, 1, 1);
    CHECK(KeptCount() == before + 6 * one);  // input and output
    Perform(executor, Operation::kAllReduce, 3, 2);
    CHECK(KeptCount() == before + 6 * one);
  }
  CHECK(KeptCount() == before + 8 * one);  // the fusion buffer and the gradients
}

// Tensors of four floats each, 8, 9, 10 and so on over all of them; with both scales.
struct Averaged {
  explicit Averaged(Operation operation, size_t tensor_count, bool is_in_place)
      : inputs(4 * tensor_count), outputs(4 * tensor_count), tasks(tensor_count) {
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(8 + i);
    for (size_t i = 0; i < tensor_count; ++i) {
      response.tensors.push_back(RequestOf(operation, "t" + std::to_string(i)));
      response.tensors[i].prescale = 0.5;
      response.tensors[i].postscale = 1.0 / 3;
      Submission& submission = tasks[i].submission;
      submission.request = response.tensors[i];
      auto* const output = is_in_place ? &inputs[4 * i] : &outputs[4 * i];
      submission.input = reinterpret_cast<const std::byte*>(&inputs[4 * i]);
      submission.output = reinterpret_cast<std::byte*>(output);
      given.push_back(&tasks[i]);
    }
  }
  std::vector<float> inputs;
  std::vector<float> outputs;
  std::vector<Task> tasks;
  std::vector<Task*> given;
  Response response;
};

// The executor must bring halves of 8, 9, ..., those of one tensor on each cache line.
void CheckBrought(const std::vector<float>& brought, size_t tensor_count) {
  for (size_t i = 0; i < 4 * tensor_count; ++i) {
    CHECK(brought.at(i / 4 * 16 + i % 4) == static_cast<float>(8 + i) / 2);
  }
}

TEST_CASE("Executor lets the collective call scale, and scales nothing after it",
          "[sync][executor]") {
  const size_t tensor_count = GENERATE(1, 3);
  const bool is_in_place = GENERATE(true, false);
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kAllReduce, tensor_count, is_in_place);
  const auto outcome = executor.Perform(averaged.response, averaged.given, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDone);
  REQUIRE(collectives.reductions.size() == 1);
  CHECK(collectives.reductions[0].op == ReduceOp::kSum);
  CHECK(collectives.reductions[0].scale == 1.0 / 3);
  CheckBrought(collectives.brought, tensor_count);
  const auto& results = is_in_place ? averaged.inputs : averaged.outputs;
  CHECK(results == std::vector<float>(4 * tensor_count, kReduced));
}

TEST_CASE("Executor lets a ReduceScatter scale", "[sync][executor]") {
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kReduceScatter, 1, true);
  const std::vector<float> before = averaged.inputs;
  const auto outcome = executor.Perform(averaged.response, averaged.given, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDone);
  CHECK(collectives.reductions.at(0).scale == 1.0 / 3);
  CheckBrought(collectives.brought, 1);
  CHECK(averaged.inputs == before);
  std::vector<float> result(2);
  REQUIRE(averaged.tasks[0].result.size() == sizeof(float) * result.size());
  std::memcpy(result.data(), averaged.tasks[0].result.data(), sizeof(float) * result.size());
  CHECK(result == std::vector<float>(2, kReduced));
}

TEST_CASE("Executor refuses a tensor on a GPU if it has none", "[sync][executor]") {
  const auto operation = GENERATE(Operation::kAllReduce, Operation::kBroadcast);
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(operation, 1, true);
  averaged.response.tensors[0].memory = MemoryKind::kDevice;
  averaged.tasks[0].submission.on_device.emplace();
  const auto outcome = executor.Perform(averaged.response, averaged.given, {.digest = 1});
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::kInternal);
  CHECK_THAT(outcome.error().message(), ContainsSubstring("'t0' is on a GPU"));
  CHECK(collectives.reductions.empty());
}

TEST_CASE("Executor restores the scaled values if the call is declined", "[sync][executor]") {
  const size_t tensor_count = GENERATE(1, 3);
  const auto half = GENERATE(PlanStep::StepHalf::kBoth, PlanStep::StepHalf::kReduce);
  Recording collectives;
  collectives.declines = true;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kAllReduce, tensor_count, true);
  const std::vector<float> before = averaged.inputs;
  const auto outcome =
      executor.PerformStep(averaged.response, {.half = half}, averaged.given, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDeclined);
  CheckBrought(collectives.brought, tensor_count);
  CHECK(averaged.inputs == before);
}

TEST_CASE("Executor reduces a slice in the memory of the output, and touches nothing else",
          "[sync][executor][steps]") {
  const bool is_in_place = GENERATE(true, false);
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kAllReduce, 1, is_in_place);
  const auto outcome =
      executor.PerformStep(averaged.response, {0, 1, 2}, averaged.given, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDone);
  CHECK(collectives.reductions.at(0).scale == 1.0 / 3);
  CHECK(collectives.brought == std::vector<float>{4.5F, 5});
  CHECK(executor.counters().collective_bytes == 2 * sizeof(float));
  if (is_in_place) {
    CHECK(averaged.inputs == std::vector<float>{8, kReduced, kReduced, 11});
  } else {
    CHECK(averaged.inputs == std::vector<float>{8, 9, 10, 11});
    CHECK(averaged.outputs == std::vector<float>{0, kReduced, kReduced, 0});
  }
}

TEST_CASE("Executor restores the first slice if it is declined", "[sync][executor][steps]") {
  Recording collectives;
  collectives.declines = true;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kAllReduce, 1, true);
  const std::vector<float> before = averaged.inputs;
  const auto outcome =
      executor.PerformStep(averaged.response, {0, 0, 3}, averaged.given, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDeclined);
  CHECK(collectives.brought == std::vector<float>{4, 4.5F, 5});
  CHECK(averaged.inputs == before);
}

// Another bucket is reduced between the halves, in the same fusion buffer.
TEST_CASE("Executor brings the first half of a reduction to the second one",
          "[sync][executor][steps]") {
  using StepHalf = PlanStep::StepHalf;
  const size_t tensor_count = GENERATE(1, 3);
  const bool is_in_place = GENERATE(true, false);
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  Averaged averaged(Operation::kAllReduce, tensor_count, is_in_place);
  const std::vector<float> before = averaged.inputs;
  const auto& results = is_in_place ? averaged.inputs : averaged.outputs;
  const auto first = executor.PerformStep(averaged.response, {.half = StepHalf::kReduce},
                                          averaged.given, {.digest = 1});
  REQUIRE(first == CallOutcome::kDone);
  CheckBrought(collectives.brought, tensor_count);
  CHECK(collectives.reductions.at(0).scale == 1.0 / 3);
  CHECK(results == std::vector<float>(4 * tensor_count, kHalfReduced));
  Averaged other(Operation::kAllReduce, 2, true);
  REQUIRE(executor.Perform(other.response, other.given, {.digest = 2}));
  const auto second = executor.PerformStep(averaged.response, {.half = StepHalf::kGather},
                                           averaged.given, {.digest = 3});
  REQUIRE(second == CallOutcome::kDone);
  for (size_t i = 0; i < 4 * tensor_count; ++i) {
    CHECK(collectives.brought.at(i / 4 * 16 + i % 4) == kHalfReduced);
  }
  CHECK(collectives.reductions.size() == 2);
  CHECK(results == std::vector<float>(4 * tensor_count, kReduced));
  if (!is_in_place) CHECK(averaged.inputs == before);
  CHECK(executor.counters().collective_count == 3);
}

TEST_CASE("A rank that has joined brings zeros to a slice", "[sync][executor][steps]") {
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  const Averaged averaged(Operation::kAllReduce, 1, true);
  const std::vector<Task*> nobody(1, nullptr);
  const auto outcome = executor.PerformStep(averaged.response, {0, 1, 3}, nobody, {.digest = 1});
  REQUIRE(outcome == CallOutcome::kDone);
  CHECK(collectives.brought == std::vector<float>(3, 0.0F));
}

// Three calls of a size say what it takes, unless this thread rests too long between them.
TEST_CASE("Executor tells the times of its reductions, and of no other call", "[sync][executor]") {
  const std::vector<TransferSample> trial = {{1 << 20, 7}};
  const bool is_tried = GENERATE(true, false);
  Recording collectives;
  SyncTracer witness(nullptr);
  PlanTimes times(is_tried ? trial : std::vector<TransferSample>());
  Executor executor(collectives, witness, 1000, 0);
  executor.set_plan_times(&times);
  const auto reduce_three_times = [&](Operation operation, size_t tensor_count) {
    for (int i = 0; i < 3; ++i) {
      Averaged averaged(operation, tensor_count, true);
      REQUIRE(executor.Perform(averaged.response, averaged.given, {.digest = 1}));
    }
  };
  collectives.declines = true;
  reduce_three_times(Operation::kAllReduce, 1);
  collectives.declines = false;
  reduce_three_times(Operation::kReduceScatter, 1);
  CHECK(times.Samples() == (is_tried ? trial : std::vector<TransferSample>()));
  collectives.delay = std::chrono::milliseconds(5);
  for (int i = 0; i < 100 && times.Samples().size() < 3; ++i) {
    reduce_three_times(Operation::kAllReduce, 1);
    reduce_three_times(Operation::kAllReduce, 2);
    if (!is_tried) break;  // the times of this rank are not used
  }
  const std::vector<TransferSample> samples = times.Samples();
  REQUIRE(samples.size() == (is_tried ? 3 : 0));
  if (!is_tried) return;
  CHECK(samples[0].bytes == 4 * sizeof(float));
  CHECK(samples[1].bytes > samples[0].bytes);
  CHECK(samples[2] == trial[0]);
}

// Calls are expected to take nothing. So the network is slower, unless ranks may have been late.
TEST_CASE("Executor tells which slices no rank can be late for", "[sync][executor][steps]") {
  const bool has_later_slice = GENERATE(true, false);
  const std::vector<TransferSample> trial = {{1, 1}, {1 << 20, 2}};
  PlanTimes times(trial);
  times.OnPlan({.plan = Plan::FromOrder({}, {}, 1),
                .forecast = PlanForecast{.iteration_ns = 1000},
                .model = *TransferModel::FromSamples(trial)});
  Recording collectives;
  SyncTracer witness(nullptr);
  Executor executor(collectives, witness, 1000, 0);
  executor.set_plan_times(&times);
  Averaged averaged(Operation::kAllReduce, 1, true);
  for (int64_t i = 0; i < 5; ++i) {
    REQUIRE(executor.PerformStep(averaged.response, {0, 0, 1}, averaged.given, {.digest = 1}));
    if (has_later_slice) {
      REQUIRE(executor.PerformStep(averaged.response, {0, 1, 3}, averaged.given, {.digest = 1}));
    }
    times.OnIterationEnd(i * 2000);
  }
  REQUIRE(times.OnAbandoned());
  const bool may_be_late = times.WrongText().find("or a rank is late") != std::string::npos;
  CHECK(may_be_late == !has_later_slice);
}

}  // namespace
}  // namespace lmdbio::sync
