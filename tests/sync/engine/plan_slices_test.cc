// Goal: a plan with slices gives the same sums as one without, also if a rank leaves it while a
// tensor is half reduced.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::SyncJob;

constexpr uint64_t kSliceBytes = 4096;
constexpr size_t kSliceCount = kSliceBytes / sizeof(int32_t);
// Elements: fused ones; a slice; one element more, and less than two; several slices, odd or not.
constexpr size_t kCounts[] = {3,
                              0,
                              17,
                              kSliceCount,
                              kSliceCount + 1,
                              2 * kSliceCount - 1,
                              4 * kSliceCount,
                              10 * kSliceCount + 5};
constexpr uint64_t kCallCount = 1 + 1 + 2 + 2 + 4 + 11;  // of an iteration; the first 3 are fused
constexpr uint64_t kBucketCount = 6;
constexpr int kSlicedCount = std::size(kCounts);

std::string SlicedName(int tensor) { return fmt::format("s{}", tensor); }

int32_t BroughtBy(int rank, int tensor, int iteration, size_t at) {
  return (1 << (4 * rank)) * (1 + static_cast<int>((at + static_cast<size_t>(tensor)) % 3)) +
         iteration;
}

// The tensors of one rank; each rank submits, and waits, in its own order.
class SlicedRank {
 public:
  SlicedRank(SyncJob& job, Synchronizer& synchronizer)
      : job_(job),
        synchronizer_(synchronizer),
        rank_(synchronizer.rank()),
        random_(static_cast<unsigned>(rank_)) {}

  // Gives the tensors in their order, as siblings.
  void SetGraph() {
    Graph graph;
    for (int tensor = 0; tensor < kSlicedCount; ++tensor) {
      graph.AddCollective(RequestOf(tensor));
    }
    job_.wrong.Expect(synchronizer_.SetGraph(graph), rank_, "SetGraph");
  }

  // Sums all tensors. The odd ones are in place.
  // waits_late  for the tensors of the iteration before, anywhere; else for all, at the end
  void Iterate(int iteration, bool waits_late) {
    std::vector<int> order(kSlicedCount);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (size_t i = 0; i < order.size(); ++i) {
      Await(order[i]);
      if (random_() % 2 == 0) Await(order[i + random_() % (order.size() - i)]);
      Submit(order[i], iteration);
    }
    if (!waits_late) AwaitAll();
  }

  void AwaitAll() {
    for (int tensor = 0; tensor < kSlicedCount; ++tensor) Await(tensor);
  }

  void Submit(int tensor, int iteration) {
    SlicedTensor& one = tensors_[tensor];
    one.iteration = iteration;
    const size_t count = kCounts[tensor];
    one.input.resize(count);
    for (size_t i = 0; i < count; ++i) one.input[i] = BroughtBy(rank_, tensor, iteration, i);
    one.output.assign(count, -1);
    void* const output = is_in_place(tensor) ? one.input.data() : one.output.data();
    Submission submission;
    submission.request = RequestOf(tensor);
    submission.input = reinterpret_cast<const std::byte*>(one.input.data());
    submission.output = static_cast<std::byte*>(output);
    auto handle = synchronizer_.Submit(std::move(submission));
    if (!handle) return job_.wrong.Add(rank_, handle.error().message());
    one.handle = std::move(*handle);
  }

  void Await(int tensor) {
    SlicedTensor& one = tensors_[tensor];
    if (!one.handle) return;
    job_.wrong.Expect(std::exchange(one.handle, std::nullopt)->Wait(), rank_, "Wait");
    const std::vector<int32_t>& sums = is_in_place(tensor) ? one.input : one.output;
    for (size_t i = 0; i < sums.size(); ++i) {
      int32_t expected = 0;
      for (int rank = 0; rank < synchronizer_.size(); ++rank) {
        expected += BroughtBy(rank, tensor, one.iteration, i);
      }
      if (sums[i] == expected) continue;
      return job_.wrong.Add(rank_,
                            fmt::format("iteration {}, {}: element {} is {}, not {}", one.iteration,
                                        SlicedName(tensor), i, sums[i], expected));
    }
  }

 private:
  struct SlicedTensor {
    std::vector<int32_t> input, output;
    std::optional<Handle> handle;
    int iteration = 0;
  };
  static bool is_in_place(int tensor) { return tensor % 2 == 1; }
  static Request RequestOf(int tensor) {
    return AllReduceOf(SlicedName(tensor), nullptr, nullptr, static_cast<int64_t>(kCounts[tensor]),
                       DataType::kInt32)
        .request;
  }

  SyncJob& job_;
  Synchronizer& synchronizer_;
  int rank_;
  std::mt19937 random_;
  std::map<int, SlicedTensor> tensors_;
};

void ExpectPlanCounts(SyncJob& job, const Synchronizer& synchronizer, uint64_t count,
                      uint64_t ends) {
  const SyncCounters counters = synchronizer.counters();
  job.wrong.Expect(counters.plan_count == count && counters.plan_end_count == ends,
                   synchronizer.rank(),
                   fmt::format("{} plans, of which {} have ended", counters.plan_count,
                               counters.plan_end_count));
}

TEST_CASE("Tensors in slices have the right sums", "[sync][plan][steps]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2, 4);
  job.options.collective = GENERATE("auto", "ring", "direct");
  job.options.slice_bytes = kSliceBytes;
  job.options.bucket_bytes = 256;
  job.options.plan_patience = 20s;
  job.options.stall_report = 40s;
  const bool waits_late = GENERATE(false, true);
  CAPTURE(job.options.collective, job.ranks.rank_count, waits_late);
  job.Run([&](Synchronizer& synchronizer) {
    SlicedRank rank(job, synchronizer);
    rank.SetGraph();
    rank.Iterate(0, false);
    const SyncCounters before = synchronizer.counters();
    for (int iteration = 1; iteration < 11; ++iteration) rank.Iterate(iteration, waits_late);
    rank.AwaitAll();
    const SyncCounters after = synchronizer.counters();
    ExpectPlanCounts(job, synchronizer, 1, 0);
    const uint64_t calls = after.collective_count - before.collective_count;
    job.wrong.Expect(calls == 10 * kCallCount, synchronizer.rank(), fmt::format("{} calls", calls));
    job.wrong.Expect(after.tensor_count - before.tensor_count == 10 * kSlicedCount,
                     synchronizer.rank(), "the number of tensors");
    job.wrong.Expect(after.cycle_count - before.cycle_count == 10 * kBucketCount,
                     synchronizer.rank(), "the number of buckets");
    job.wrong.Expect(after.control_message_count == before.control_message_count,
                     synchronizer.rank(), "control messages");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Ranks that leave a plan while a tensor is half reduced lose no value",
          "[sync][plan][steps]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(2, 3);
  job.options.slice_bytes = 64;  // up to 512 slices, so there is time to leave between them
  job.options.bucket_bytes = 64;
  job.Run([&](Synchronizer& synchronizer) {
    const int number = synchronizer.rank();
    SlicedRank rank(job, synchronizer);
    const bool leaves_first = number == 1;
    for (int iteration = 0; iteration < 40; ++iteration) {
      const bool has_extra = iteration % 12 == 8;
      if (!has_extra) {
        rank.Iterate(iteration, false);
        continue;
      }
      for (int tensor = 0; tensor < kSlicedCount - 1; ++tensor) rank.Submit(tensor, iteration);
      if (!leaves_first) rank.AwaitAll();
      std::vector<float> extra(10, 1.0F);
      auto handle = synchronizer.Submit(AllReduceOf("extra", extra.data(), extra.data(), 10));
      if (!handle) return job.wrong.Add(number, handle.error().message());
      rank.Submit(kSlicedCount - 1, iteration);
      rank.AwaitAll();
      job.wrong.Expect(handle->Wait(), number, "extra");
      const auto sum = static_cast<float>(synchronizer.size());
      job.wrong.Expect(extra == std::vector<float>(10, sum), number, "the sum of extra");
    }
    job.wrong.Expect(synchronizer.counters().plan_end_count >= 2, number, "plans have ended");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// The bits of averages that round.
std::vector<std::vector<float>> RoundedAverages(const std::string& collective,
                                                uint64_t slice_bytes) {
  constexpr int64_t kCount = 20'001;
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.collective = collective;
  job.options.slice_bytes = slice_bytes;
  job.options.plan_patience = 60s;
  job.options.stall_report = 120s;
  std::vector<std::vector<float>> averages(3);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    Submission submission = AllReduceOf("large", nullptr, nullptr, kCount);
    submission.request.prescale = 0.7;
    submission.request.postscale = 1.0 / 3;
    Graph graph;
    graph.AddCollective(submission.request);
    job.wrong.Expect(synchronizer.SetGraph(graph), rank, "SetGraph");
    std::mt19937 random(static_cast<unsigned>(rank));
    std::uniform_real_distribution<float> value(-1, 1);
    const uint64_t before = synchronizer.counters().collective_count;
    for (int iteration = 0; iteration < 2; ++iteration) {
      std::vector<float> values(kCount);
      for (float& x : values) x = value(random);
      submission.input = reinterpret_cast<const std::byte*>(values.data());
      submission.output = reinterpret_cast<std::byte*>(values.data());
      auto handle = synchronizer.Submit(submission);
      if (!handle || !handle->Wait()) return job.wrong.Add(rank, "Sum");
      auto& all = averages[static_cast<size_t>(rank)];
      all.insert(all.end(), values.begin(), values.end());
    }
    const uint64_t calls = synchronizer.counters().collective_count - before;
    const uint64_t expected =
        slice_bytes == 0 ? 2 : 2 * ((kCount * 4 + slice_bytes - 1) / slice_bytes);
    job.wrong.Expect(calls == expected, rank, fmt::format("{} calls", calls));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  return averages;
}

TEST_CASE("Slices change no bit, but with ring", "[sync][plan][steps]") {
  const std::string collective = GENERATE("auto", "shm", "halving", "direct");
  INFO(collective);
  const auto whole = RoundedAverages(collective, 0);
  for (const auto& one : whole) CHECK((one == whole[0]));
  for (const uint64_t slice_bytes : {uint64_t{64} * 4, uint64_t{64} * 300, uint64_t{64} * 1000}) {
    CHECK((RoundedAverages(collective, slice_bytes) == whole));
  }
}

TEST_CASE("A timeline has a span for each slice, with the number of its bucket",
          "[sync][trace][steps]") {
  const test::TempDir dir;
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.slice_bytes = kSliceBytes;
  job.options.timeline_path = (dir.path() / "timeline").string();
  job.Run([&](Synchronizer& synchronizer) {
    Graph graph;
    graph.AddCollective(AllReduceOf("large", nullptr, nullptr, 5 * kSliceCount).request);
    job.wrong.Expect(synchronizer.SetGraph(graph), synchronizer.rank(), "SetGraph");
    std::vector<float> values(5 * kSliceCount, 1.0F);
    for (int iteration = 0; iteration < 2; ++iteration) {
      job.wrong.Expect(SyncJob::Sum(synchronizer, "large", values), synchronizer.rank(), "Sum");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  std::ifstream file(dir.path() / "timeline.0");
  std::map<uint64_t, std::vector<uint64_t>> bytes_of;  // by the number of the bucket
  std::vector<uint64_t> numbers;                       // of the buckets of "large"
  for (const auto& event : nlohmann::json::parse(file)) {
    if (!event.contains("args")) continue;
    const auto& args = event["args"];
    if (event.value("name", "") == "bucket") bytes_of[args["number"]].push_back(args["bytes"]);
    if (event.value("name", "") == "allreduce") numbers.push_back(args["bucket"]);
  }
  REQUIRE(numbers.size() == 2);
  CHECK(numbers[0] != numbers[1]);
  for (const uint64_t number : numbers) {
    CHECK(bytes_of[number] == std::vector<uint64_t>(5, kSliceBytes));
  }
}

TEST_CASE("Slices need a coordinator that follows plans", "[sync][create][steps]") {
  SyncOptions options;
  options.slice_bytes = kSliceBytes;
  CHECK(options.Check());
  options.coordinator = GENERATE("cache", "horovod", "hierarchical");
  const Status status = options.Check();
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == ErrorCode::kInvalidArgument);
  CHECK(status.error().message() ==
        fmt::format("slice_bytes: 4096: only plans have slices, and coordinator '{}' follows none; "
                    "use 'topo' or 'caramel'",
                    options.coordinator));
  options.slice_bytes = 0;
  CHECK(options.Check());
}

TEST_CASE("Description tells that tensors are cut", "[sync][edges][steps]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.slice_bytes = GENERATE(uint64_t{0}, kSliceBytes);
  job.Run([&](Synchronizer& synchronizer) {
    const auto lines = fmt::format("{}", fmt::join(synchronizer.Description(), "|"));
    const std::string begin = "plans cut tensors of more than ";
    const bool is_right = job.options.slice_bytes > 0
                              ? lines.find(begin + "4096 bytes") != std::string::npos
                              : lines.find(begin) == std::string::npos;
    job.wrong.Expect(is_right, synchronizer.rank(), lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
