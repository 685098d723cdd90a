// Goal: with the coordinator caramel the ranks come to follow a plan by time, whose sums are those
// of any other plan; where time can gain nothing, and where it is not known, they say so. When the
// times change, they learn another plan.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/tiers/make_collectives.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::GradientOf;
using test::SumOf;
using test::SyncJob;

constexpr int kLayers = 6;
constexpr size_t kLayerCount = 32 << 10;  // elements
constexpr int kIterationsMax = 60;

// Of a network, in MB/s.
using NetworkRate = std::atomic<int64_t>;
constexpr int64_t kUsualRate = 64;  // much slower than the tests compute

class SlowNetwork final : public ForwardedCollectives {
 public:
  // rate  for all ranks; outlives the collectives
  static Result<std::unique_ptr<Collectives>> Make(ranks::Group& group, ranks::Health& health,
                                                   const NetworkRate& rate) {
    LMDBIO_TRY(auto inner, MakeCollectives(group, health, {}));
    return std::unique_ptr<Collectives>(std::make_unique<SlowNetwork>(std::move(inner), rate));
  }
  SlowNetwork(std::unique_ptr<Collectives> inner, const NetworkRate& rate)
      : ForwardedCollectives(std::move(inner)), rate_(rate) {}
  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    Result<CallOutcome> outcome = ForwardedCollectives::AllReduce(tag, values, reduction);
    const bool is_done = outcome && *outcome == CallOutcome::kDone;
    if (is_done) std::this_thread::sleep_for(Bytes(values) * 1us / rate_.load());
    return outcome;
  }

 private:
  static int64_t Bytes(const Values& values) {
    return static_cast<int64_t>(values.count * ElementBytes(values.type));
  }
  const NetworkRate& rate_;
};

std::string LayerName(int layer) { return fmt::format("layer{}", layer); }

// Trains on one rank: the tensors of the last layer come first. The program needs those of the
// first layer first, or all at the end.
class TimedTraining {
 public:
  TimedTraining(SyncJob& job, Synchronizer& synchronizer, bool waits_late)
      : job_(job), synchronizer_(synchronizer), waits_late_(waits_late), layers_(kLayers) {}

  // Returns when a plan was followed for some iterations.
  void Run() {
    for (int iteration = 0; iteration < kIterationsMax; ++iteration) {
      Iterate(iteration);
      if (synchronizer_.counters().plan_count > 0 && ++followed_count_ == 4) break;
    }
    for (int layer = 0; layer < kLayers; ++layer) Await(layer);
    job_.wrong.Expect(followed_count_ == 4, synchronizer_.rank(), "no plan");
  }

  // Returns when `is_over` has been true at the end of an iteration on rank 0. It is asked there
  // only. The other ranks cannot end the next iteration before rank 0 has begun it.
  // last_iteration  of all ranks
  void RunUntil(const std::function<bool()>& is_over, std::atomic<int>& last_iteration) {
    bool was_over = false;
    for (int iteration = 0; iteration <= last_iteration.load(); ++iteration) {
      Iterate(iteration);
      if (synchronizer_.rank() > 0 || was_over || !is_over()) continue;
      was_over = true;
      last_iteration.store(std::min(last_iteration.load(), iteration + 1));
    }
    for (int layer = 0; layer < kLayers; ++layer) Await(layer);
  }

 private:
  struct TimedLayer {
    std::vector<float> values;
    std::optional<Handle> handle;
    int iteration = 0;
  };

  void Iterate(int iteration) {
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      Compute();
      TimedLayer& one = layers_[static_cast<size_t>(layer)];
      one.values = GradientOf(synchronizer_.rank(), layer, iteration, kLayerCount);
      one.iteration = iteration;
      auto handle = synchronizer_.Submit(
          AllReduceOf(LayerName(layer), one.values.data(), one.values.data(), kLayerCount));
      if (!handle) return job_.wrong.Add(synchronizer_.rank(), handle.error().message());
      one.handle = std::move(*handle);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      Await(layer);
      if (waits_late_) Compute();
    }
  }

  static void Compute() { std::this_thread::sleep_for(2ms); }

  void Await(int layer) {
    TimedLayer& one = layers_[static_cast<size_t>(layer)];
    if (!one.handle) return;
    job_.wrong.Expect(std::exchange(one.handle, std::nullopt)->Wait(), synchronizer_.rank(),
                      "Wait");
    const bool is_sum =
        one.values == SumOf(synchronizer_.size(), layer, one.iteration, kLayerCount);
    job_.wrong.Expect(
        is_sum, synchronizer_.rank(),
        fmt::format("iteration {}, {}: not the sum", one.iteration, LayerName(layer)));
  }

  SyncJob& job_;
  Synchronizer& synchronizer_;
  const bool waits_late_;
  std::vector<TimedLayer> layers_;
  int followed_count_ = 0;
};

// Trains in a slow network, and returns what rank 0 says of its plan.
std::string WordsOfOnePlan(SyncJob& job, bool waits_late) {
  const NetworkRate rate{kUsualRate};
  job.options.coordinator = "caramel";
  job.collectives = [&](ranks::Group& group, ranks::Health& health) {
    return SlowNetwork::Make(group, health, rate);
  };
  std::string words;
  job.Run([&](Synchronizer& synchronizer) {
    TimedTraining(job, synchronizer, waits_late).Run();
    if (synchronizer.rank() > 0) return;
    for (const std::string& line : synchronizer.Description()) {
      if (line.starts_with("plan")) words += line + "\n";
    }
  });
  return words;
}

// The same when no other process has disturbed the times. Where one has, iterations differ too
// much, or calls take times that make another plan better.
std::string WordsOfPlan(SyncJob& job, bool waits_late, bool is_by_arrival) {
  constexpr int kTries = 20;
  std::string words;
  for (int i = 0; i < kTries; ++i) {
    words = WordsOfOnePlan(job, waits_late);
    const bool is_disturbed = words.find("differ too much") != std::string::npos;
    if (!is_disturbed && words.ends_with("by arrival\n") == is_by_arrival) break;
  }
  return words;
}

TEST_CASE("A program that waits where it needs a tensor gets a plan by time", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.order = GENERATE("due", "bins");
  CAPTURE(job.options.order);
  const std::string words = WordsOfPlan(job, true, false);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  CHECK(words.find("by time: an iteration of") != std::string::npos);
  CHECK_FALSE(words.ends_with("by arrival\n"));
  CHECK(job.notes.Has("by time: an iteration of"));
}

TEST_CASE("A program that waits for all tensors at the end keeps the order of arrival",
          "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.bucket_bytes = kLayerCount * sizeof(float);  // else smaller buckets gain something
  const std::string words = WordsOfPlan(job, false, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  CHECK(words.ends_with(" steps, by arrival\n"));
}

TEST_CASE("A plan by arrival needs no times", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.order = "arrival";
  const std::string words = WordsOfOnePlan(job, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  CHECK(words.find("by time") == std::string::npos);
}

TEST_CASE("Ranks reduce in halves, on one host and on several", "[timed_plans][split]") {
  SyncJob job;
  job.ranks = GENERATE(ranks::ThreadRanks{1, 1}, ranks::ThreadRanks{3, 3}, ranks::ThreadRanks{2, 1},
                       ranks::ThreadRanks{4, 2});
  job.options.order = "split";
  job.options.bucket_bytes = GENERATE(uint64_t{0}, 2 * kLayerCount * sizeof(float));
  CAPTURE(job.ranks.rank_count, job.options.bucket_bytes);
  const std::string words = WordsOfOnePlan(job, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  CHECK(words.find("plan 1 in halves: ") != std::string::npos);
}

TEST_CASE("A rank alone has no transfers, and says so", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 1;
  const std::string words = WordsOfOnePlan(job, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  const std::string begin = "plan 1 is by arrival: ";
  const bool is_disturbed =
      words.ends_with(begin + "the times of the iterations differ too much\n");
  CHECK((is_disturbed || words.ends_with(begin + "there are no times of calls\n")));
}

// Whether the times were steady when the present plan was made.
bool HasForecast(const Synchronizer& synchronizer) {
  const std::vector<std::string> lines = synchronizer.Description();
  return std::ranges::any_of(lines, [](const std::string& line) {
    return line.find(" by time: an iteration of") != std::string::npos;
  });
}

// The words of rank 0 after a training in a network whose rate changes when a plan was followed for
// some iterations. The training ends with the second plan, or if the first one is kept or has no
// forecast.
std::string WordsOfChange(SyncJob& job, int64_t first_rate, int64_t second_rate) {
  constexpr int kKeptIterations = 15;  // with a plan that should be wrong
  NetworkRate rate{first_rate};
  std::atomic<int> last_iteration{2 * kIterationsMax};
  job.options.coordinator = "caramel";
  job.collectives = [&](ranks::Group& group, ranks::Health& health) {
    return SlowNetwork::Make(group, health, rate);
  };
  std::string words;
  job.Run([&](Synchronizer& synchronizer) {
    int followed_count = 0;
    const auto is_over = [&] {
      const SyncCounters counters = synchronizer.counters();
      if (counters.plan_count > 0 && ++followed_count == 3) rate.store(second_rate);
      const bool is_first = counters.plan_count == 1 && counters.plan_end_count == 0;
      const bool is_kept = is_first && followed_count > kKeptIterations;
      return counters.plan_count > 1 || is_kept || (is_first && !HasForecast(synchronizer));
    };
    TimedTraining(job, synchronizer, true).RunUntil(is_over, last_iteration);
    if (synchronizer.rank() > 0) return;
    for (const std::string& line : synchronizer.Description()) words += line + "\n";
  });
  return words;
}

// In one of several runs other processes do not disturb the times. The sums are those in all runs.
TEST_CASE("A network that becomes slower or faster brings a new plan", "[timed_plans]") {
  constexpr int kTries = 20;
  const auto [first_rate, second_rate, change] =
      GENERATE(Catch::Generators::table<int64_t, int64_t, std::string>(
          {{kUsualRate, kUsualRate / 10, "the network is slower"},
           {kUsualRate / 10, kUsualRate, "the network is faster"}}));
  std::string words;
  bool is_found = false;
  for (int i = 0; i < kTries && !is_found; ++i) {
    SyncJob job;
    job.ranks.rank_count = 2;
    words = WordsOfChange(job, first_rate, second_rate);
    REQUIRE(job.wrong.lines() == std::vector<std::string>());
    is_found = words.find("\nplan 2 ") != std::string::npos &&
               words.find("the forecast of plan 1 was wrong: " + change) != std::string::npos;
    if (is_found) CHECK(job.notes.Has("the forecast of plan 1 was wrong: " + change));
  }
  INFO(words);
  CHECK(is_found);
}

TEST_CASE("Orders of plans belong to the coordinator caramel, and groups do not",
          "[sync][create][timed_plans]") {
  SyncOptions options;
  options.order = GENERATE("bins", "split");
  const Status topo = options.Check();
  REQUIRE_FALSE(topo);
  CHECK(topo.error().message() ==
        fmt::format("order: '{}': only coordinator 'caramel' orders a plan, and the coordinator is "
                    "'topo'",
                    options.order));
  options.coordinator = "caramel";
  CHECK(options.Check());
  options.num_groups = 5;
  const Status groups = options.Check();
  REQUIRE_FALSE(groups);
  CHECK(groups.error().message() ==
        "num_groups: 5: a plan by time has no tensor groups; use order 'arrival', or another "
        "coordinator");
  options.order = "arrival";
  CHECK(options.Check());
}

}  // namespace
}  // namespace lmdbio::sync
