// Goal: a plan gives the same results as rounds, and the ranks abandon it without an error if the
// program does something else.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::GradientOf;
using test::SumOf;
using test::SyncJob;

constexpr size_t kElements = 10;

std::string TensorName(int tensor) { return fmt::format("t{}", tensor); }

Request RequestOf(const std::string& name, Operation operation, std::vector<int64_t> shape) {
  Request request;
  request.name = name;
  request.operation = operation;
  request.shape = std::move(shape);
  return request;
}

// Tensors that are summed one by one, each wanted before the next.
void SumEach(SyncJob& job, Synchronizer& synchronizer, int iteration, int first, int last) {
  for (int tensor = first; tensor < last; ++tensor) {
    auto values = GradientOf(synchronizer.rank(), tensor, iteration, kElements);
    job.wrong.Expect(SyncJob::Sum(synchronizer, TensorName(tensor), values), synchronizer.rank(),
                     fmt::format("Sum {} of iteration {}", tensor, iteration));
    job.wrong.Expect(values == SumOf(synchronizer.size(), tensor, iteration, kElements),
                     synchronizer.rank(), "the sum");
  }
}

void ExpectPlans(SyncJob& job, const Synchronizer& synchronizer, uint64_t count, uint64_t ends) {
  const SyncCounters counters = synchronizer.counters();
  job.wrong.Expect(counters.plan_count == count && counters.plan_end_count == ends,
                   synchronizer.rank(),
                   fmt::format("{} plans, of which {} have ended", counters.plan_count,
                               counters.plan_end_count));
}

Result<Handle> SubmitBarrier(Synchronizer& synchronizer) {
  Submission barrier;
  barrier.request = RequestOf("barrier", Operation::kBarrier, {});
  return synchronizer.Submit(std::move(barrier));
}

TEST_CASE("A barrier in a plan waits for all ranks", "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.collective = GENERATE("auto", "ring");
  std::array<std::atomic<int>, 20> came{};
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int iteration = 0; iteration < 20; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, 2);
      if (rank == iteration % 3) std::this_thread::sleep_for(5ms);
      std::atomic<int>& here = came[static_cast<size_t>(iteration)];
      ++here;
      auto handle = SubmitBarrier(synchronizer);
      if (!handle || !handle->Wait()) return job.wrong.Add(rank, "the barrier");
      job.wrong.Expect(here == 3, rank, fmt::format("iteration {}: not all came", iteration));
    }
    ExpectPlans(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A rank that leaves its plan before a barrier takes all others along",
          "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.stall_limit = 5s;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int iteration = 0; iteration < 20; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, 2);
      const bool has_extra = iteration == 10;
      if (has_extra && rank == 1) SumEach(job, synchronizer, iteration, 99, 100);
      auto handle = SubmitBarrier(synchronizer);
      if (has_extra && rank == 0) {
        std::this_thread::sleep_for(50ms);  // it is in the barrier now
        SumEach(job, synchronizer, iteration, 99, 100);
      }
      if (!handle || !handle->Wait()) return job.wrong.Add(rank, "the barrier");
    }
    ExpectPlans(job, synchronizer, 2, 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Gathers rows of two numbers, and checks the result.
void GatherRows(SyncJob& job, Synchronizer& synchronizer, const std::vector<int64_t>& rows) {
  const int rank = synchronizer.rank();
  const std::vector<float> mine(static_cast<size_t>(rows[static_cast<size_t>(rank)] * 2),
                                static_cast<float>(rank));
  Submission submission;
  submission.request =
      RequestOf("gather", Operation::kAllGather, {rows[static_cast<size_t>(rank)], 2});
  submission.input = reinterpret_cast<const std::byte*>(mine.data());
  auto handle = synchronizer.Submit(std::move(submission));
  if (!handle || !handle->Wait()) return job.wrong.Add(rank, "the gathering");
  std::vector<float> expected;
  for (size_t other = 0; other < rows.size(); ++other) {
    expected.insert(expected.end(), static_cast<size_t>(rows[other] * 2),
                    static_cast<float>(other));
  }
  std::vector<float> all(handle->result().size() / sizeof(float));
  std::memcpy(all.data(), handle->result().data(), handle->result().size());
  job.wrong.Expect(all == expected, rank, "what was gathered");
  job.wrong.Expect(handle->result_rows() == rows, rank, "whose rows");
}

TEST_CASE("Gatherings of equal rows go through a plan", "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  const bool has_graph = GENERATE(false, true);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    if (has_graph) {
      Graph graph;
      graph.AddCollective(RequestOf(TensorName(0), Operation::kAllReduce, {kElements}));
      graph.AddCollective(RequestOf("gather", Operation::kAllGather, {3, 2}));
      job.wrong.Expect(synchronizer.SetGraph(graph), rank, "SetGraph");
    }
    for (int iteration = 0; iteration < 10; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, 1);
      GatherRows(job, synchronizer, {3, 3});
    }
    ExpectPlans(job, synchronizer, 1, 0);
    SumEach(job, synchronizer, 10, 0, 1);
    GatherRows(job, synchronizer, {3, 5});
    ExpectPlans(job, synchronizer, 1, 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A group of empty tensors needs no fusion buffer", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.collective = GENERATE("auto", "ring");
  job.options.fusion_threshold_bytes = 0;
  job.Run([&](Synchronizer& synchronizer) {
    for (int iteration = 0; iteration < 6; ++iteration) {
      auto handles = synchronizer.SubmitGroup(
          {AllReduceOf("a", nullptr, nullptr, 0), AllReduceOf("b", nullptr, nullptr, 0)});
      if (!handles) return job.wrong.Add(synchronizer.rank(), handles.error().message());
      for (Handle& handle : *handles) {
        job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
      }
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A graph with an operation that no plan can hold is refused", "[sync][plan][errors]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  const auto operation = GENERATE(Operation::kAllToAll, Operation::kJoin, Operation::kAdoptPlan);
  job.Run([&](Synchronizer& synchronizer) {
    Graph graph;
    graph.AddCollective(RequestOf(TensorName(0), Operation::kAllReduce, {kElements}));
    graph.AddCollective(RequestOf("odd", operation, {4}));
    const Status status = synchronizer.SetGraph(graph);
    const bool is_refused = !status && status.error().code() == ErrorCode::kInvalidArgument &&
                            status.error().message().find("'odd'") != std::string::npos;
    job.wrong.Expect(is_refused, synchronizer.rank(), "SetGraph");
    for (int iteration = 0; iteration < 10; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, 2);
    }
    ExpectPlans(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A graph that comes too late, or without plans, is refused", "[sync][plan][errors]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.coordinator = GENERATE("topo", "cache", "horovod");
  const bool has_plans = job.options.coordinator == "topo";
  const std::string why =
      has_plans ? "call it before the first one" : fmt::format("not '{}'", job.options.coordinator);
  job.Run([&](Synchronizer& synchronizer) {
    Graph graph;
    graph.AddCollective(RequestOf(TensorName(0), Operation::kAllReduce, {kElements}));
    if (has_plans) SumEach(job, synchronizer, 0, 0, 1);
    const Status status = synchronizer.SetGraph(graph);
    const bool is_refused = !status && status.error().code() == ErrorCode::kInvalidArgument &&
                            status.error().message().find(why) != std::string::npos;
    job.wrong.Expect(is_refused, synchronizer.rank(), "SetGraph");
    for (int iteration = 1; iteration < 5; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, 2);
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Two sums; the second is submitted when the first is known to be done, without a wait.
struct Pair {
  SyncJob& job;
  Synchronizer& synchronizer;
  std::vector<float> first = std::vector<float>(kElements, 1.0F);
  std::vector<float> second = std::vector<float>(kElements, 1.0F);
  std::atomic<bool> is_over{false};

  void SubmitSecond() {
    Submission submission = AllReduceOf("second", second.data(), second.data(), kElements);
    submission.callback = [this](const Status&) { is_over = true; };
    if (synchronizer.Submit(std::move(submission))) return;
    job.wrong.Add(synchronizer.rank(), "Submit");
    is_over = true;
  }

  void ByCallback() {
    Submission submission = AllReduceOf("first", first.data(), first.data(), kElements);
    submission.callback = [this](const Status&) { SubmitSecond(); };
    if (!synchronizer.Submit(std::move(submission))) job.wrong.Add(synchronizer.rank(), "Submit");
    while (!is_over) std::this_thread::sleep_for(50us);
  }

  void ByAsking() {
    for (auto* const values : {&first, &second}) {
      auto handle = synchronizer.Submit(AllReduceOf(values == &first ? "first" : "second",
                                                    values->data(), values->data(), kElements));
      if (!handle) return job.wrong.Add(synchronizer.rank(), "Submit");
      while (!handle->is_done()) std::this_thread::sleep_for(50us);
    }
  }
};

TEST_CASE(
    "A tensor that is submitted after another one is known to be done does not share its bucket",
    "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.plan_patience = 20ms;
  const bool asks = GENERATE(false, true);
  CAPTURE(asks);
  job.Run([&](Synchronizer& synchronizer) {
    for (int iteration = 0; iteration < 30; ++iteration) {
      Pair pair{.job = job, .synchronizer = synchronizer};
      if (asks) {
        pair.ByAsking();
      } else {
        pair.ByCallback();
      }
      const std::vector<float> twos(kElements, 2.0F);
      job.wrong.Expect(pair.first == twos && pair.second == twos, synchronizer.rank(), "the sums");
    }
    ExpectPlans(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Callbacks that submit nothing part no bucket", "[sync][plan][edges]") {
  constexpr int kTensors = 4;
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    SyncCounters before;
    for (int iteration = 0; iteration < 12; ++iteration) {
      before = synchronizer.counters();
      std::vector<std::vector<float>> values(kTensors, std::vector<float>(kElements, 1.0F));
      std::atomic<int> called{0};
      std::vector<Handle> handles;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        float* const data = values[static_cast<size_t>(tensor)].data();
        Submission submission = AllReduceOf(TensorName(tensor), data, data, kElements);
        submission.callback = [&called](const Status&) { ++called; };
        auto handle = synchronizer.Submit(std::move(submission));
        if (!handle) return job.wrong.Add(synchronizer.rank(), handle.error().message());
        handles.push_back(std::move(*handle));
        // Time for the callback, while there is no plan.
        if (iteration < 4) std::this_thread::sleep_for(5ms);
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
      while (called < kTensors) std::this_thread::sleep_for(50us);
    }
    ExpectPlans(job, synchronizer, 1, 0);
    const uint64_t calls = synchronizer.counters().collective_count - before.collective_count;
    job.wrong.Expect(calls == 1, synchronizer.rank(), fmt::format("{} buckets", calls));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A graph's plan that ends amid an iteration comes back at the beginning of one",
          "[sync][plan][edges]") {
  constexpr int kTensors = 6;
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.plan_patience = 20ms;
  job.options.fusion_threshold_bytes = 0;
  job.Run([&](Synchronizer& synchronizer) {
    Graph graph;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      graph.AddCollective(RequestOf(TensorName(tensor), Operation::kAllReduce, {kElements}));
    }
    job.wrong.Expect(synchronizer.SetGraph(graph), synchronizer.rank(), "SetGraph");
    for (int iteration = 0; iteration < 40; ++iteration) {
      SumEach(job, synchronizer, iteration, 0, kTensors / 2);
      if (iteration == 5) SumEach(job, synchronizer, iteration, 99, 100);
      SumEach(job, synchronizer, iteration, kTensors / 2, kTensors);
    }
    ExpectPlans(job, synchronizer, 2, 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Wake-ups do not end a plan before its patience does", "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.plan_patience = 60s;
  job.options.stall_report = 200ms;  // a rank sends a wake-up after half of it
  job.Run([&](Synchronizer& synchronizer) {
    for (int iteration = 0; iteration < 10; ++iteration) {
      if (iteration == 8 && synchronizer.rank() == 1) std::this_thread::sleep_for(1s);
      SumEach(job, synchronizer, iteration, 0, 3);
    }
    ExpectPlans(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A graph waits for all ranks, and fails when one has left without it",
          "[sync][plan][edges]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    if (synchronizer.rank() == 1) return;
    Graph graph;
    graph.AddCollective(AllReduceOf("one", nullptr, nullptr, 10).request);
    const Status status = synchronizer.SetGraph(graph);
    job.wrong.Expect(!status && status.error().code() == ErrorCode::kPeerFailed &&
                         status.error().message().find("rank 1") != std::string::npos,
                     synchronizer.rank(), status ? "no error" : status.error().message());
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A timeline has all of a wait, however long, and in however many parts",
          "[sync][trace][edges]") {
  const test::TempDir dir;
  const bool is_in_parts = GENERATE(false, true);
  CAPTURE(is_in_parts);
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.timeline_path = (dir.path() / "timeline").string();
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> values(kElements, 1.0F);
    if (synchronizer.rank() == 1) std::this_thread::sleep_for(1500ms);
    auto handle = synchronizer.Submit(AllReduceOf("late", values.data(), values.data(), kElements));
    if (!handle) return job.wrong.Add(synchronizer.rank(), "Submit");
    while (is_in_parts && !handle->is_done()) {
      job.wrong.Expect(handle->WaitFor(100ms).has_value(), synchronizer.rank(), "WaitFor");
    }
    job.wrong.Expect(handle->Wait(), synchronizer.rank(), "Wait");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  std::ifstream file(dir.path() / "timeline.0");
  double waited_us = 0;
  for (const auto& event : nlohmann::json::parse(file)) {
    if (event.value("name", "") == "wait") waited_us += event.value("dur", 0.0);
  }
  CHECK(waited_us > 1'000'000);
}

}  // namespace
}  // namespace lmdbio::sync
