// Oracle: the sum over all ranks, computed by one thread.
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::GradientOf;
using test::SumOf;
using test::SyncJob;

constexpr int kTensorCount = 17;

size_t CountOf(int tensor) { return static_cast<size_t>(tensor * tensor * 13 % 700); }

std::string NameOf(int tensor) { return fmt::format("layer{}.weight", tensor); }

struct SubmittedIteration {
  std::vector<std::vector<float>> values;
  std::vector<Handle> handles;
};

// Submits all tensors in an order of this rank's own.
SubmittedIteration Begin(SyncJob& job, Synchronizer& synchronizer, int iteration) {
  SubmittedIteration begun;
  begun.values.resize(kTensorCount);
  std::vector<int> order(kTensorCount);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(static_cast<unsigned>(iteration * 100 + synchronizer.rank()));
  std::shuffle(order.begin(), order.end(), random);
  for (const int tensor : order) {
    auto& values = begun.values[static_cast<size_t>(tensor)];
    values = GradientOf(synchronizer.rank(), tensor, iteration, CountOf(tensor));
    auto handle = synchronizer.Submit(AllReduceOf(NameOf(tensor), values.data(), values.data(),
                                                  static_cast<int64_t>(values.size())));
    if (!handle) {
      job.wrong.Add(synchronizer.rank(), handle.error().message());
    } else {
      begun.handles.push_back(std::move(*handle));
    }
  }
  return begun;
}

void Train(SyncJob& job, Synchronizer& synchronizer, int first, int last) {
  for (int iteration = first; iteration < last; ++iteration) {
    SubmittedIteration begun = Begin(job, synchronizer, iteration);
    for (Handle& handle : begun.handles) {
      if (!job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait")) return;
    }
    for (int tensor = 0; tensor < kTensorCount; ++tensor) {
      const auto expected = SumOf(synchronizer.size(), tensor, iteration, CountOf(tensor));
      job.wrong.Expect(begun.values[static_cast<size_t>(tensor)] == expected, synchronizer.rank(),
                       fmt::format("iteration {}: the sum of {}", iteration, NameOf(tensor)));
    }
  }
}

TEST_CASE("Synchronizer sums with every coordinator and pacing", "[sync]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 3, 4, 5, 8);
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  job.options.pacing = GENERATE("event", "cycle", "gs", "nbcs");
  INFO(job.options.coordinator << " " << job.options.pacing << " " << job.ranks.rank_count);
  job.Run([&](Synchronizer& synchronizer) { Train(job, synchronizer, 0, 6); });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Synchronizer sums over several hosts", "[sync][several_hosts]") {
  SyncJob job;
  job.ranks = {.rank_count = 5, .ranks_per_host = GENERATE(1, 2)};
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  INFO(job.options.coordinator << " " << job.ranks.ranks_per_host);
  job.Run([&](Synchronizer& synchronizer) { Train(job, synchronizer, 0, 6); });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("With a plan no control message is sent", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(2, 4);
  job.options.fusion_threshold_bytes = GENERATE(uint64_t{4000}, uint64_t{64} << 20);
  job.Run([&](Synchronizer& synchronizer) {
    Train(job, synchronizer, 0, 10);
    const SyncCounters before = synchronizer.counters();
    job.wrong.Expect(before.plan_count == 1, synchronizer.rank(), "a plan was adopted");
    Train(job, synchronizer, 10, 60);
    const SyncCounters after = synchronizer.counters();
    const int rank = synchronizer.rank();
    job.wrong.Expect(after.control_message_count == before.control_message_count, rank, "control");
    const uint64_t calls = after.collective_count - before.collective_count;
    const uint64_t buckets = calls / 50;
    job.wrong.Expect(calls % 50 == 0 && buckets >= 1, rank, "as many buckets each iteration");
    job.wrong.Expect(after.plan_end_count == 0, rank, "the plan holds");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Buckets of a plan keep to their size, and to the threshold", "[sync][plan]") {
  struct Limits {
    uint64_t threshold_bytes, bucket_bytes;
    uint64_t least_count, most_count;  // of buckets for 17 tensors
    uint64_t last_bucket_bytes = 0;
  };
  // 17 tensors of 0 to 2,796 bytes; together less than 17 * 2,816.
  const auto limits = GENERATE(Limits{64 << 20, 0, 1, 1}, Limits{64 << 20, 4096, 5, 16},
                               Limits{4096, 1 << 20, 5, 16}, Limits{0, 4096, 17, 17},
                               Limits{64 << 20, 1 << 20, 3, 8, 3000});
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.fusion_threshold_bytes = limits.threshold_bytes;
  job.options.bucket_bytes = limits.bucket_bytes;
  job.options.last_bucket_bytes = limits.last_bucket_bytes;
  job.Run([&](Synchronizer& synchronizer) {
    Train(job, synchronizer, 0, 10);
    const SyncCounters before = synchronizer.counters();
    Train(job, synchronizer, 10, 11);
    const uint64_t count = synchronizer.counters().collective_count - before.collective_count;
    job.wrong.Expect(before.plan_count == 1, synchronizer.rank(), "a plan was adopted");
    job.wrong.Expect(count >= limits.least_count && count <= limits.most_count, synchronizer.rank(),
                     fmt::format("{} buckets", count));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Sums that round, of every rank and iteration.
std::vector<std::vector<float>> RoundedSums(const std::string& collective) {
  SyncJob job;
  job.ranks.rank_count = 4;
  job.options.collective = collective;
  job.options.fusion_threshold_bytes = 3000;
  job.options.plan_patience = 60s;  // for slow machines: without the plan the bits would differ
  job.options.stall_report = 120s;
  std::vector<std::vector<float>> sums(4);
  job.Run([&](Synchronizer& synchronizer) {
    const auto rank = static_cast<size_t>(synchronizer.rank());
    Graph graph;
    for (int tensor = 0; tensor < 6; ++tensor) {
      graph.AddCollective(AllReduceOf(NameOf(tensor), nullptr, nullptr, 200).request);
    }
    job.wrong.Expect(synchronizer.SetGraph(graph), synchronizer.rank(), "SetGraph");
    std::mt19937 random(static_cast<unsigned>(rank));
    std::uniform_real_distribution<float> value(-1, 1);
    for (int iteration = 0; iteration < 5; ++iteration) {
      std::vector<std::vector<float>> values(6, std::vector<float>(200));
      for (auto& one : values) {
        for (float& x : one) x = value(random);
      }
      std::vector<Handle> handles;
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t tensor = (i + rank) % values.size();
        handles.push_back(std::move(*synchronizer.Submit(AllReduceOf(
            NameOf(static_cast<int>(tensor)), values[tensor].data(), values[tensor].data(), 200))));
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
      for (const auto& one : values) sums[rank].insert(sums[rank].end(), one.begin(), one.end());
    }
    const SyncCounters counters = synchronizer.counters();
    job.wrong.Expect(counters.plan_count == 1 && counters.plan_end_count == 0, synchronizer.rank(),
                     "one plan");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  return sums;
}

TEST_CASE("With a plan the same values give the same bits, on every rank and in every run",
          "[sync][plan]") {
  const std::string collective = GENERATE("auto", "shm", "ring", "halving", "direct");
  INFO(collective);
  const auto sums = RoundedSums(collective);
  for (const auto& one : sums) CHECK((one == sums[0]));
  for (int run = 0; run < 3; ++run) CHECK((RoundedSums(collective) == sums));
}

TEST_CASE("A rank that leaves its plan takes all others along", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(2, 3);
  job.options.plan_patience = 50ms;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    Train(job, synchronizer, 0, 8);
    job.wrong.Expect(synchronizer.counters().plan_count == 1, rank, "a plan");
    // A tensor that the plan does not hold.
    std::vector<float> extra = GradientOf(rank, 99, 0, 10);
    job.wrong.Expect(SyncJob::Sum(synchronizer, "extra", extra), rank, "extra");
    job.wrong.Expect(extra == SumOf(synchronizer.size(), 99, 0, 10), rank, "the sum of extra");
    Train(job, synchronizer, 8, 30);
    job.wrong.Expect(synchronizer.counters().plan_count == 2, rank, "a second plan");
    // Another shape.
    std::vector<float> other = GradientOf(rank, 3, 0, CountOf(3) + 5);
    job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(3), other), rank, "another shape");
    job.wrong.Expect(other == SumOf(synchronizer.size(), 3, 0, CountOf(3) + 5), rank, "its sum");
    // Some tensors alone, of which the others of their bucket do not come.
    for (const int tensor : {1, 5}) {
      std::vector<float> some = GradientOf(rank, tensor, 0, CountOf(tensor));
      job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(tensor), some), rank, "alone");
    }
    Train(job, synchronizer, 30, 60);
    for (const int tensor : {1, 5}) {
      std::vector<float> some = GradientOf(rank, tensor, 0, CountOf(tensor));
      job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(tensor), some), rank, "alone in a plan");
    }
    Train(job, synchronizer, 60, 70);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A program that changes for good is learnt anew", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    // Only two iterations are alike, so the agreed plan is never adopted.
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (const int tensor : {1, 2}) {
        auto values = GradientOf(rank, tensor, iteration, 10);
        job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(tensor), values), rank, "Sum");
      }
    }
    for (int iteration = 0; iteration < 1200; ++iteration) {
      auto values = GradientOf(rank, 3, iteration, 10);
      job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(3), values), rank, "Sum");
      job.wrong.Expect(values == SumOf(2, 3, iteration, 10), rank, "the sum");
    }
    job.wrong.Expect(synchronizer.counters().plan_count == 1, rank, "a plan of what came later");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Tensors that wait for others do not share a bucket with them", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int iteration = 0; iteration < 20; ++iteration) {
      for (int tensor = 1; tensor < 6; ++tensor) {
        auto values = GradientOf(rank, tensor, iteration, 50);
        job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(tensor), values), rank, "Sum");
        job.wrong.Expect(values == SumOf(2, tensor, iteration, 50), rank, "the sum");
      }
    }
    job.wrong.Expect(synchronizer.counters().plan_count == 1, rank, "a plan");
    job.wrong.Expect(synchronizer.counters().plan_end_count == 0, rank, "that holds");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

Graph GraphOf(int tensor_count, int swapped) {
  Graph graph;
  for (int tensor = 0; tensor < tensor_count; ++tensor) {
    Request request =
        AllReduceOf(NameOf(tensor), nullptr, nullptr, static_cast<int64_t>(CountOf(tensor)))
            .request;
    if (tensor == swapped) request.shape[0] += 1;
    graph.AddCollective(request);
  }
  return graph;
}

TEST_CASE("A plan of a graph is followed from the first iteration on", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 3);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    job.wrong.Expect(synchronizer.SetGraph(GraphOf(kTensorCount, -1)), rank, "SetGraph");
    Train(job, synchronizer, 0, 1);
    const uint64_t first_count = synchronizer.counters().collective_count;
    Train(job, synchronizer, 1, 10);
    job.wrong.Expect(synchronizer.counters().plan_count == 1, rank, "a plan");
    job.wrong.Expect(synchronizer.counters().collective_count == 10 * first_count, rank,
                     "the first iteration is in buckets like all others");
    std::vector<float> extra = GradientOf(rank, 99, 0, 10);
    job.wrong.Expect(SyncJob::Sum(synchronizer, "extra", extra), rank, "extra");
    Train(job, synchronizer, 10, 30);
    job.wrong.Expect(synchronizer.counters().plan_count == 2, rank, "the plan comes back");
  });
  INFO(fmt::format("{}", fmt::join(job.notes.lines(), "\n")));
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Graphs that differ between ranks are told, and done without", "[sync][plan]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.Run([&](Synchronizer& synchronizer) {
    const int swapped = synchronizer.rank() == 1 ? 4 : -1;
    job.wrong.Expect(synchronizer.SetGraph(GraphOf(kTensorCount, swapped)), synchronizer.rank(),
                     "SetGraph");
    Train(job, synchronizer, 0, 10);
    job.wrong.Expect(synchronizer.counters().plan_count == 0, synchronizer.rank(), "no plan");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(job.notes.Has(fmt::format("rank {}: no plan: the plans of the ranks differ", rank)));
  }
}

TEST_CASE("Requests that differ fail on every rank, with the request of each rank",
          "[sync][errors]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    std::vector<float> values(static_cast<size_t>(rank == 2 ? 7 : 5));
    const Status status = SyncJob::Sum(synchronizer, "odd", values);
    job.wrong.Expect(!status && status.error().code() == ErrorCode::kInvalidArgument &&
                         status.error().message().find("'odd'") != std::string::npos &&
                         status.error().message().find("rank 2") != std::string::npos,
                     rank, "shape: " + (status ? "no error" : status.error().message()));
    std::vector<float> good = GradientOf(rank, 1, 1, 20);
    job.wrong.Expect(SyncJob::Sum(synchronizer, "odd", good), rank, "the name may be used again");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A tensor under way cannot be submitted again", "[sync][errors]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    if (synchronizer.rank() == 1) std::this_thread::sleep_for(100ms);
    std::vector<float> values(10, 1.0F);
    auto first = synchronizer.Submit(AllReduceOf("a", values.data(), values.data(), 10));
    auto second = synchronizer.Submit(AllReduceOf("a", values.data(), values.data(), 10));
    const bool is_refused =
        !second && second.error().code() == ErrorCode::kInvalidArgument &&
        second.error().message().find("'a' is in progress") != std::string::npos;
    if (synchronizer.rank() == 0) job.wrong.Expect(is_refused, 0, "the second one is refused");
    if (second) job.wrong.Expect(second->Wait(), synchronizer.rank(), "Wait");
    job.wrong.Expect(first->Wait(), synchronizer.rank(), "the first one goes on");
  });
}

TEST_CASE("An invalid submission is refused on its rank", "[sync][errors]") {
  SyncJob job;
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> values(8);
    const auto refused = [&](Submission submission) {
      const auto handle = synchronizer.Submit(std::move(submission));
      job.wrong.Expect(!handle && handle.error().code() == ErrorCode::kInvalidArgument, 0,
                       "should be refused");
    };
    refused(AllReduceOf("", values.data(), values.data(), 8));
    refused(AllReduceOf(std::string(5000, 'x'), values.data(), values.data(), 8));
    refused(AllReduceOf("a", nullptr, values.data(), 8));
    refused(AllReduceOf("a", values.data(), nullptr, 8));
    refused(AllReduceOf("a", values.data(), values.data(), -8));
    Submission huge = AllReduceOf("a", values.data(), values.data(), 8);
    huge.request.shape = {int64_t{1} << 40, int64_t{1} << 40};
    refused(std::move(huge));
    Submission rooted = AllReduceOf("a", values.data(), values.data(), 8);
    rooted.request.operation = Operation::kBroadcast;
    rooted.request.root = 1;
    refused(std::move(rooted));
    Submission split = AllReduceOf("a", values.data(), values.data(), 8);
    split.request.operation = Operation::kAllToAll;
    split.request.splits = {7};
    refused(std::move(split));
    Submission plan = AllReduceOf("a", values.data(), values.data(), 8);
    plan.request.operation = Operation::kAdoptPlan;
    refused(std::move(plan));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// One rank submits every operation once.
struct AllOperations {
  AllOperations(const std::string& prefix, int rank, int size)
      : own(static_cast<size_t>((rank + 1) * 2), rank),
        rows(static_cast<size_t>(size * 2 + 1) * 3, rank + 1),
        root_values(5, rank == size - 1 ? 77 : 0) {
    Add(prefix + "gather", Operation::kAllGather, {rank + 1, 2}, own);
    std::vector<int64_t> splits;
    for (int other = 0; other < size; ++other) {
      splits.push_back((rank + other) % 3);
      pieces.insert(pieces.end(), static_cast<size_t>((rank + other) % 3), rank * 100 + other);
    }
    Add(prefix + "all-to-all", Operation::kAllToAll, {static_cast<int64_t>(pieces.size())}, pieces);
    submissions.back().request.splits = splits;
    Add(prefix + "scatter", Operation::kReduceScatter, {size * 2 + 1, 3}, rows);
    Add(prefix + "broadcast", Operation::kBroadcast, {5}, root_values);
    submissions.back().request.root = size - 1;
    submissions.back().output = reinterpret_cast<std::byte*>(root_values.data());
    Add(prefix + "barrier", Operation::kBarrier, {}, {});
  }

  void Add(const std::string& name, Operation operation, std::vector<int64_t> shape,
           const std::vector<int32_t>& input) {
    Submission& submission = submissions.emplace_back();
    submission.request.name = name;
    submission.request.operation = operation;
    submission.request.type = DataType::kInt32;
    submission.request.shape = std::move(shape);
    submission.input = reinterpret_cast<const std::byte*>(input.data());
  }

  std::vector<int32_t> own, pieces, rows, root_values;
  std::vector<Submission> submissions;
};

bool Has(Bytes bytes, const std::vector<int32_t>& values) {
  const Bytes expected = std::as_bytes(std::span(values));
  return std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end());
}

// Every operation once, under these names.
void DoAll(SyncJob& job, Synchronizer& synchronizer, const std::string& prefix) {
  const int rank = synchronizer.rank();
  const int size = synchronizer.size();
  const auto expect = [&](bool holds, const std::string& what) {
    job.wrong.Expect(holds, rank, prefix + what);
  };
  AllOperations all(prefix, rank, size);
  std::vector<Handle> handles;
  for (Submission& one : all.submissions) {
    auto handle = synchronizer.Submit(std::move(one));
    if (!handle) return expect(false, handle.error().message());
    handles.push_back(std::move(*handle));
  }
  for (Handle& handle : handles) {
    const Status status = handle.Wait();
    if (!status) return expect(false, status.error().message());
  }
  std::vector<int32_t> gathered;
  std::vector<int32_t> received;
  for (int other = 0; other < size; ++other) {
    gathered.insert(gathered.end(), static_cast<size_t>((other + 1) * 2), other);
    received.insert(received.end(), static_cast<size_t>((rank + other) % 3), other * 100 + rank);
    expect(handles[0].result_rows().at(static_cast<size_t>(other)) == other + 1, "rows");
  }
  expect(Has(handles[0].result(), gathered), "allgather");
  expect(Has(handles[1].result(), received), "alltoall");
  const size_t own_rows = rank == 0 ? 3 : 2;
  expect(Has(handles[2].result(), std::vector<int32_t>(own_rows * 3, size * (size + 1) / 2)),
         "reduce-scatter");
  expect(all.root_values == std::vector<int32_t>(5, 77), "broadcast");
}

TEST_CASE("Synchronizer does every operation", "[sync]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 3, 4, 5, 8);
  job.options.coordinator = GENERATE("horovod", "topo");
  job.Run([&](Synchronizer& synchronizer) {
    for (int i = 0; i < 3; ++i) DoAll(job, synchronizer, "");
    Train(job, synchronizer, 0, 6);
    DoAll(job, synchronizer, "between ");
    Train(job, synchronizer, 6, 10);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("An average and scales, alone and fused", "[sync]") {
  SyncJob job;
  job.ranks.rank_count = 4;
  job.options.fusion_threshold_bytes = GENERATE(uint64_t{0}, uint64_t{1} << 20);
  job.Run([&](Synchronizer& synchronizer) {
    for (int i = 0; i < 6; ++i) {
      std::vector<std::vector<float>> values(3, std::vector<float>(33, 2.0F));
      std::vector<Submission> group;
      for (int k = 0; k < 3; ++k) {
        auto& one = values[static_cast<size_t>(k)];
        group.push_back(AllReduceOf(NameOf(k), one.data(), one.data(), 33));
        group.back().request.prescale = 0.5;
        group.back().request.postscale = 0.25;
      }
      auto handles = synchronizer.SubmitGroup(std::move(group));
      if (!handles) return job.wrong.Add(synchronizer.rank(), handles.error().message());
      for (Handle& handle : *handles) {
        job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
      }
      job.wrong.Expect(values == std::vector(3, std::vector<float>(33, 1.0F)), synchronizer.rank(),
                       "the average of halves");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A round fuses tensors up to the size of a bucket", "[sync]") {
  constexpr size_t kCount = 100;  // 448 bytes of a bucket
  static constexpr uint64_t kBucketBytes = 1024;
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical");
  job.options.bucket_bytes = GENERATE(uint64_t{0}, uint64_t{kBucketBytes});
  // All tensors are submitted before the first round begins.
  job.options.pacing = "cycle";
  job.options.cycle_time = std::chrono::milliseconds(200);
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<std::vector<float>> values(8);
    std::vector<Handle> handles;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = GradientOf(synchronizer.rank(), static_cast<int>(i), 0, kCount);
      auto handle = synchronizer.Submit(
          AllReduceOf(fmt::format("t{}", i), values[i].data(), values[i].data(), int64_t{kCount}));
      if (!handle) return job.wrong.Add(synchronizer.rank(), handle.error().message());
      handles.push_back(std::move(*handle));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const Status done = handles[i].Wait();
      if (!done) return job.wrong.Add(synchronizer.rank(), done.error().message());
      if (values[i] == SumOf(2, static_cast<int>(i), 0, kCount)) continue;
      job.wrong.Add(synchronizer.rank(), fmt::format("the sum of t{} is wrong", i));
    }
    const uint64_t most = synchronizer.counters().collective_bytes_max;
    if ((most <= kBucketBytes) == (job.options.bucket_bytes > 0)) return;
    job.wrong.Add(synchronizer.rank(), fmt::format("a call of {} bytes", most));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Values of which no sum and no third is exact.
float InexactAt(int rank, size_t i) {
  return 1.0F / static_cast<float>(i + 1) * static_cast<float>(rank * 37 % 11 + 1);
}

TEST_CASE("An average has the same bits on every rank, with every coordinator", "[sync]") {
  constexpr size_t kCount = 20'011;
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  job.options.fusion_threshold_bytes = GENERATE(uint64_t{0}, uint64_t{1} << 20);
  job.options.gradient_bytes = 4 * (kCount * sizeof(float) + 64);
  const bool is_placed = GENERATE(false, true);
  std::vector<float> expected(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const float sum = (InexactAt(0, i) + InexactAt(1, i)) + InexactAt(2, i);
    expected[i] = sum * static_cast<float>(1.0 / 3);
  }
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    std::vector<std::vector<float>> own(4, std::vector<float>(kCount));
    std::vector<float*> tensors;
    for (auto& one : own) {
      const auto place = synchronizer.Place(kCount * sizeof(float));
      if (!place) return job.wrong.Add(rank, place.error().message());
      tensors.push_back(is_placed ? reinterpret_cast<float*>(place->data()) : one.data());
    }
    for (int round = 0; round < 5; ++round) {
      std::vector<Handle> handles;
      for (size_t k = 0; k < tensors.size(); ++k) {
        for (size_t i = 0; i < kCount; ++i) tensors[k][i] = InexactAt(rank, i);
        auto submission = AllReduceOf(NameOf(static_cast<int>(k)), tensors[k], tensors[k], kCount);
        submission.request.postscale = 1.0 / 3;
        auto handle = synchronizer.Submit(std::move(submission));
        if (!handle) return job.wrong.Add(rank, handle.error().message());
        handles.push_back(std::move(*handle));
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), rank, "Wait");
      for (const float* tensor : tensors) {
        job.wrong.Expect(std::equal(expected.begin(), expected.end(), tensor), rank, "the average");
      }
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A group larger than the fusion buffer travels in parts", "[sync]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.fusion_threshold_bytes = 1000;  // no multiple of a cache line
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<std::vector<float>> values;
    for (int k = 0; k < 12; ++k) values.push_back(GradientOf(synchronizer.rank(), k, 0, 59));
    std::vector<Submission> group;
    for (int k = 0; k < 12; ++k) {
      auto& one = values[static_cast<size_t>(k)];
      group.push_back(AllReduceOf(NameOf(k), one.data(), one.data(), 59));
    }
    auto handles = synchronizer.SubmitGroup(std::move(group));
    if (!handles) return job.wrong.Add(synchronizer.rank(), handles.error().message());
    for (Handle& handle : *handles) job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
    for (int k = 0; k < 12; ++k) {
      job.wrong.Expect(values[static_cast<size_t>(k)] == SumOf(2, k, 0, 59), synchronizer.rank(),
                       "the sum");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Ranks with fewer batches join, and bring zeros", "[sync][join]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(2, 3, 5);
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  const int size = job.ranks.rank_count;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int epoch = 0; epoch < 2; ++epoch) {
      const int batch_count = 8 + rank * 2;
      for (int batch = 0; batch < batch_count; ++batch) {
        std::vector<float> values(20, 1.0F);
        job.wrong.Expect(SyncJob::Sum(synchronizer, "w", values), rank, "Sum");
        int present = 0;
        for (int other = 0; other < size; ++other) present += 8 + other * 2 > batch ? 1 : 0;
        job.wrong.Expect(values == std::vector<float>(20, static_cast<float>(present)), rank,
                         fmt::format("batch {}: sum {} of {} ranks", batch, values[0], present));
      }
      Submission join;
      if (epoch == 0) join.request.name = "join";  // which needs none
      join.request.operation = Operation::kJoin;
      auto handle = synchronizer.Submit(std::move(join));
      if (!handle) return job.wrong.Add(rank, handle.error().message());
      job.wrong.Expect(handle->Wait(), rank, "join");
      job.wrong.Expect(handle->last_joined() == size - 1, rank, "who joined last");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Two large tensors that look as if they lay in a fusion buffer, and two small ones in the gap
// between them and behind them.
TEST_CASE("Tensors that share placed memory leave their neighbours alone", "[sync][place]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 3);
  job.options.coordinator = GENERATE("cache", "topo");
  job.options.gradient_bytes = 1 << 20;
  // Too large for call buffers, so the collectives reduce in place.
  constexpr size_t kLarge = 20'000;
  const std::vector<std::pair<size_t, size_t>> layout = {
      {0, kLarge + 10}, {kLarge + 16, kLarge + 10}, {kLarge + 10, 6}, {2 * kLarge + 26, 5}};
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    auto place = synchronizer.Place((2 * kLarge + 31) * sizeof(float));
    if (!place) return job.wrong.Add(rank, place.error().message());
    auto* const all = reinterpret_cast<float*>(place->data());
    for (int iteration = 0; iteration < 10; ++iteration) {
      for (int tensor = 0; tensor < 4; ++tensor) {
        const auto [first, count] = layout[static_cast<size_t>(tensor)];
        const auto mine = GradientOf(rank, tensor, iteration, count);
        std::copy(mine.begin(), mine.end(), all + first);
      }
      std::vector<Handle> handles;
      // The neighbours are reduced first, and must not be reduced again.
      for (const int tensor : {2, 3, 0, 1}) {
        const auto [first, count] = layout[static_cast<size_t>(tensor)];
        auto handle = synchronizer.Submit(
            AllReduceOf(NameOf(tensor), all + first, all + first, static_cast<int64_t>(count)));
        if (!handle) return job.wrong.Add(rank, handle.error().message());
        handles.push_back(std::move(*handle));
        if (tensor == 3) {
          for (Handle& one : handles) job.wrong.Expect(one.Wait(), rank, "Wait");
        }
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), rank, "Wait");
      for (int tensor = 0; tensor < 4; ++tensor) {
        const auto [first, count] = layout[static_cast<size_t>(tensor)];
        const auto expected = SumOf(synchronizer.size(), tensor, iteration, count);
        job.wrong.Expect(std::equal(expected.begin(), expected.end(), all + first), rank,
                         fmt::format("tensor {} of iteration {}", tensor, iteration));
      }
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Gradients that lie in placed memory need no packing", "[sync][place]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 3);
  job.options.gradient_bytes = 1 << 16;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    std::vector<MutableBytes> places;
    for (int tensor = 0; tensor < 5; ++tensor) {
      auto place = synchronizer.Place(CountOf(tensor) * sizeof(float));
      if (!place) return job.wrong.Add(rank, place.error().message());
      places.push_back(*place);
    }
    job.wrong.Expect(!synchronizer.Place(1 << 16), rank, "there is not so much left");
    for (int iteration = 0; iteration < 10; ++iteration) {
      std::vector<Handle> handles;
      for (int tensor = 0; tensor < 5; ++tensor) {
        auto* const values = reinterpret_cast<float*>(places[static_cast<size_t>(tensor)].data());
        const auto mine = GradientOf(rank, tensor, iteration, CountOf(tensor));
        std::copy(mine.begin(), mine.end(), values);
        handles.push_back(std::move(*synchronizer.Submit(
            AllReduceOf(NameOf(tensor), values, values, static_cast<int64_t>(CountOf(tensor))))));
      }
      for (Handle& handle : handles) job.wrong.Expect(handle.Wait(), rank, "Wait");
      for (int tensor = 0; tensor < 5; ++tensor) {
        const auto expected = SumOf(synchronizer.size(), tensor, iteration, CountOf(tensor));
        const auto* values =
            reinterpret_cast<const float*>(places[static_cast<size_t>(tensor)].data());
        job.wrong.Expect(std::equal(expected.begin(), expected.end(), values), rank, "the sum");
      }
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Threads submit at the same time, and every operation calls back", "[sync][threads]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("cache", "topo");
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int iteration = 0; iteration < 20; ++iteration) {
          auto values = GradientOf(rank, thread, iteration, 100);
          Submission submission = AllReduceOf(NameOf(thread), values.data(), values.data(), 100);
          submission.callback = [&](const Status& status) { done += status ? 1 : 0; };
          auto handle = synchronizer.Submit(std::move(submission));
          if (!handle || !handle->Wait()) return job.wrong.Add(rank, "a thread failed");
          job.wrong.Expect(values == SumOf(3, thread, iteration, 100), rank, "the sum");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    job.wrong.Expect(done == 80, rank, "a callback for each");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A tensor that some rank never submits is reported, and fails in the end",
          "[sync][stall]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  job.options.plan_patience = 100ms;
  job.options.stall_report = 300ms;
  job.options.stall_limit = 1500ms;
  const bool is_known_before = GENERATE(false, true);
  INFO(job.options.coordinator << (is_known_before ? " known before" : ""));
  std::atomic<int> failed = 0;  // ranks
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    if (is_known_before) Train(job, synchronizer, 0, 6);
    std::vector<float> values(CountOf(2));
    if (rank == 1) {
      for (int i = 0; i < 6000 && failed < 2; ++i) std::this_thread::sleep_for(10ms);
      return;
    }
    const Status status = SyncJob::Sum(synchronizer, NameOf(2), values);
    ++failed;
    job.wrong.Expect(!status && status.error().code() == ErrorCode::kPeerFailed &&
                         status.error().message().find(NameOf(2)) != std::string::npos,
                     rank, status ? "no error" : status.error().message());
    job.notes.Add(rank, "error: " + (status ? "" : status.error().message()));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(fmt::format("{}", fmt::join(job.notes.lines(), "\n")));
  CHECK(job.notes.Has(fmt::format("tensor '{}'", NameOf(2))));
  CHECK(job.notes.Has("for rank 1"));
}

TEST_CASE("A tensor that a rank of another host lacks is reported, and done when it is submitted",
          "[sync][stall][several_hosts]") {
  SyncJob job;
  // The last of seven hosts is two levels below rank 0.
  job.ranks = GENERATE(ranks::ThreadRanks{4, 2}, ranks::ThreadRanks{7, 1});
  job.options.coordinator = GENERATE("cache", "hierarchical");
  job.options.tree_arity = 2;
  job.options.stall_report = 1500ms;
  const std::string report = fmt::format("for rank {}", job.ranks.rank_count - 1);
  job.Run([&](Synchronizer& synchronizer) {
    if (synchronizer.rank() == synchronizer.size() - 1) {
      for (int i = 0; i < 6000 && !job.notes.Has(report); ++i) std::this_thread::sleep_for(10ms);
    }
    std::vector<float> values(CountOf(2), 1.0F);
    job.wrong.Expect(SyncJob::Sum(synchronizer, NameOf(2), values), synchronizer.rank(), "Sum");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(fmt::format("{}", fmt::join(job.notes.lines(), "\n")));
  CHECK(job.notes.Has(report));
}

TEST_CASE("A rank that closes with tensors in progress fails them on all ranks", "[sync][errors]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("horovod", "cache", "topo");
  const int iterations = GENERATE(0, 8);
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    Train(job, synchronizer, 0, iterations);
    if (rank == 1) return;
    std::vector<float> values(CountOf(2));
    const Status status = SyncJob::Sum(synchronizer, NameOf(2), values);
    job.wrong.Expect(!status && status.error().code() == ErrorCode::kPeerFailed &&
                         status.error().message().find("rank 1") != std::string::npos,
                     rank, status ? "no error" : status.error().message());
    auto late = synchronizer.Submit(AllReduceOf("late", values.data(), values.data(), 1));
    job.wrong.Expect(!late && late.error().code() == ErrorCode::kPeerFailed, rank, "late");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
