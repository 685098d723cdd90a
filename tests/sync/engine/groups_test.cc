// Goal: with num_groups every coordinator reduces the tensors of an iteration in that many calls,
// and no program is stuck because a tensor of a group does not come.
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::GradientOf;
using test::SumOf;
using test::SyncJob;

constexpr size_t kCount = 10;
constexpr int kTensors = 12;

// The sums of an iteration: submits tensors, then waits for all of them and compares.
class Iteration {
 public:
  Iteration(SyncJob& job, Synchronizer& synchronizer, int number)
      : job_(job), synchronizer_(synchronizer), number_(number), values_(kTensors) {}

  void Submit(int tensor) {
    std::vector<float>& values = values_[static_cast<size_t>(tensor)];
    values = GradientOf(synchronizer_.rank(), tensor, number_, kCount);
    auto handle = synchronizer_.Submit(
        AllReduceOf(fmt::format("t{}", tensor), values.data(), values.data(), kCount));
    if (!handle) return job_.wrong.Add(synchronizer_.rank(), handle.error().message());
    waits_.emplace_back(tensor, std::move(*handle));
  }

  void Wait() {
    for (auto& [tensor, handle] : waits_) {
      const int rank = synchronizer_.rank();
      if (!job_.wrong.Expect(handle.Wait(), rank, fmt::format("t{} in {}", tensor, number_)))
        continue;
      job_.wrong.Expect(values_[static_cast<size_t>(tensor)] ==
                            SumOf(job_.ranks.rank_count, tensor, number_, kCount),
                        rank, fmt::format("the sum of t{} in iteration {}", tensor, number_));
    }
    waits_.clear();
  }

 private:
  SyncJob& job_;
  Synchronizer& synchronizer_;
  int number_;
  std::vector<std::vector<float>> values_;  // [tensors]
  std::vector<std::pair<int, Handle>> waits_;
};

// All tensors but one; -1: all. Each rank has an order of its own.
void RunIteration(SyncJob& job, Synchronizer& synchronizer, int number, int missing = -1) {
  Iteration iteration(job, synchronizer, number);
  for (int i = 0; i < kTensors; ++i) {
    const int tensor = (i * 5 + synchronizer.rank() * 7 + number) % kTensors;
    if (tensor != missing) iteration.Submit(tensor);
  }
  iteration.Wait();
}

void ExpectGroups(SyncJob& job, const Synchronizer& synchronizer, uint64_t count, uint64_t ends) {
  const SyncCounters counters = synchronizer.counters();
  job.wrong.Expect(counters.plan_count == count && counters.plan_end_count == ends,
                   synchronizer.rank(),
                   fmt::format("{} times grouped, of which {} have ended", counters.plan_count,
                               counters.plan_end_count));
}

// Nothing but the groups makes calls larger: no two tensors fit a bucket.
void SetUp(SyncJob& job, std::string coordinator, uint32_t num_groups) {
  job.ranks.rank_count = 3;
  job.ranks.ranks_per_host = 2;
  job.options.coordinator = std::move(coordinator);
  job.options.num_groups = num_groups;
  job.options.bucket_bytes = 1;
  job.options.plan_patience = 50ms;
  job.options.stall_limit = 20s;
}

TEST_CASE("Every coordinator reduces an iteration in num_groups calls", "[sync][groups]") {
  const std::string coordinator = GENERATE("cache", "horovod", "hierarchical", "topo");
  const uint32_t num_groups = GENERATE(0U, 1U, 3U, 5U);
  SyncJob job;
  SetUp(job, coordinator, num_groups);
  job.options.group_by = GENERATE("bytes", "tensors");
  job.options.pacing = coordinator == "horovod" ? "cycle" : "event";
  CAPTURE(coordinator, num_groups, job.options.group_by);
  job.Run([&](Synchronizer& synchronizer) {
    uint64_t last_calls = 0;
    for (int number = 0; number < 8; ++number) {
      const uint64_t before = synchronizer.counters().collective_count;
      RunIteration(job, synchronizer, number);
      last_calls = synchronizer.counters().collective_count - before;
    }
    const uint64_t wanted = num_groups == 0 ? kTensors : num_groups;
    job.wrong.Expect(last_calls == wanted, synchronizer.rank(),
                     fmt::format("{} calls in the last iteration", last_calls));
    const bool is_grouped = num_groups > 0 || coordinator == "topo";
    ExpectGroups(job, synchronizer, is_grouped ? 1 : 0, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Groups end on all ranks if a tensor is left out, and return", "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 2);
  job.Run([&](Synchronizer& synchronizer) {
    for (int number = 0; number < 16; ++number) {
      RunIteration(job, synchronizer, number, number == 6 ? 4 : -1);
      // The counters of an iteration are certain in the next one.
      if (number == 5) ExpectGroups(job, synchronizer, 1, 0);
      if (number == 7) ExpectGroups(job, synchronizer, 1, 1);
    }
    ExpectGroups(job, synchronizer, 2, 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A rank that waits in the middle of a group gets its sum", "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 1);
  job.Run([&](Synchronizer& synchronizer) {
    for (int number = 0; number < 6; ++number) RunIteration(job, synchronizer, number);
    ExpectGroups(job, synchronizer, 1, 0);
    Iteration iteration(job, synchronizer, 6);
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      iteration.Submit(tensor);
      if (tensor == 4 && synchronizer.rank() == 1) iteration.Wait();
    }
    iteration.Wait();
    RunIteration(job, synchronizer, 7);
    ExpectGroups(job, synchronizer, 1, 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A rank that is only late does not end the groups", "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 2);
  job.options.plan_patience = 10ms;
  job.Run([&](Synchronizer& synchronizer) {
    for (int number = 0; number < 10; ++number) {
      if (number >= 5 && synchronizer.rank() == number % 3) std::this_thread::sleep_for(200ms);
      RunIteration(job, synchronizer, number);
    }
    ExpectGroups(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A late rank does not end groups of programs that wait in an iteration",
          "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 6);
  job.options.plan_patience = 50ms;
  job.options.pacing = "cycle";
  job.Run([&](Synchronizer& synchronizer) {
    for (int number = 0; number < 9; ++number) {
      Iteration iteration(job, synchronizer, number);
      if (number >= 6 && synchronizer.rank() == number % 3) std::this_thread::sleep_for(200ms);
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        if (tensor == 7) iteration.Wait();
        iteration.Submit(tensor);
      }
      iteration.Wait();
    }
    ExpectGroups(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A group cannot be given to Submit", "[sync][groups][errors]") {
  SyncJob job;
  SetUp(job, "cache", 0);
  job.Run([&](Synchronizer& synchronizer) {
    float value = 1;
    Submission one = AllReduceOf("a", &value, &value, 1);
    one.request.group = "lmdbio.group.1.0";
    one.request.group_size = 2;
    const auto refused = synchronizer.Submit(std::move(one));
    job.wrong.Expect(!refused && refused.error().message().find("SubmitGroup") != std::string::npos,
                     synchronizer.rank(), "the group");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A tensor outside the groups, or of another operation, is reduced", "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 2);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int number = 0; number < 6; ++number) RunIteration(job, synchronizer, number);
    auto values = GradientOf(rank, 50, 0, kCount);
    job.wrong.Expect(SyncJob::Sum(synchronizer, "another", values), rank, "another tensor");
    job.wrong.Expect(values == SumOf(3, 50, 0, kCount), rank, "the sum of another tensor");
    ExpectGroups(job, synchronizer, 1, 0);

    values = GradientOf(rank, 3, 0, kCount);
    Submission broadcast = AllReduceOf("t3", values.data(), values.data(), kCount);
    broadcast.request.operation = Operation::kBroadcast;
    auto handle = synchronizer.Submit(std::move(broadcast));
    if (!handle) return job.wrong.Add(rank, handle.error().message());
    job.wrong.Expect(handle->Wait(), rank, "the broadcast");
    job.wrong.Expect(values == GradientOf(0, 3, 0, kCount), rank, "what was broadcast");
    for (int number = 6; number < 9; ++number) RunIteration(job, synchronizer, number);
    ExpectGroups(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("More groups than tensors are noted once", "[sync][groups]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "topo"), 40);
  job.Run([&](Synchronizer& synchronizer) {
    for (int number = 0; number < 6; ++number) RunIteration(job, synchronizer, number);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  CHECK(job.notes.lines().size() == 3);
  CHECK(job.notes.Has("num_groups 40: an iteration reduces only 12 tensors"));
}

TEST_CASE("Groups continue while ranks join", "[sync][groups][join]") {
  SyncJob job;
  SetUp(job, GENERATE("cache", "horovod", "hierarchical"), 3);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int number = 0; number < 6; ++number) RunIteration(job, synchronizer, number);
    // The others go on for two iterations, with zeros from rank 2.
    for (int extra = 0; extra < 2 && rank != 2; ++extra) {
      std::vector<std::vector<float>> values;
      std::vector<Handle> handles;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        values.emplace_back(kCount, 1.0F);
        auto handle = synchronizer.Submit(AllReduceOf(
            fmt::format("t{}", tensor), values.back().data(), values.back().data(), kCount));
        if (!handle) return job.wrong.Add(rank, handle.error().message());
        handles.push_back(std::move(*handle));
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), rank, "an extra sum");
      for (const auto& sums : values) {
        job.wrong.Expect(sums == std::vector<float>(kCount, 2.0F), rank, "zeros of a joined rank");
      }
    }
    Submission join;
    join.request.operation = Operation::kJoin;
    join.request.name = "join";
    auto handle = synchronizer.Submit(std::move(join));
    if (!handle) return job.wrong.Add(rank, handle.error().message());
    job.wrong.Expect(handle->Wait(), rank, "the join");
    for (int number = 6; number < 8; ++number) RunIteration(job, synchronizer, number);
    ExpectGroups(job, synchronizer, 1, 0);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
