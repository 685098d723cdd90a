// Goal: with the coordinator caramel the ranks come to follow a plan by time, whose sums are those
// of any other plan; where time can gain nothing, and where it is not known, they say so.
#include <chrono>
#include <cstring>
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

// A network of about 64 MB/s: much slower than the tests compute.
class SlowNetwork final : public ForwardedCollectives {
 public:
  static Result<std::unique_ptr<Collectives>> Make(ranks::Group& group, ranks::Health& health) {
    LMDBIO_TRY(auto inner, MakeCollectives(group, health, {}));
    return std::unique_ptr<Collectives>(std::make_unique<SlowNetwork>(std::move(inner)));
  }
  explicit SlowNetwork(std::unique_ptr<Collectives> inner)
      : ForwardedCollectives(std::move(inner)) {}
  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    Result<CallOutcome> outcome = ForwardedCollectives::AllReduce(tag, values, reduction);
    const bool is_done = outcome && *outcome == CallOutcome::kDone;
    if (is_done) std::this_thread::sleep_for(Bytes(values) * 1us / 64);
    return outcome;
  }

 private:
  static int64_t Bytes(const Values& values) {
    return static_cast<int64_t>(values.count * ElementBytes(values.type));
  }
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
  job.options.coordinator = "caramel";
  job.collectives = [](ranks::Group& group, ranks::Health& health) {
    return SlowNetwork::Make(group, health);
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

// The same when no other process has disturbed the times.
std::string WordsOfPlan(SyncJob& job, bool waits_late) {
  constexpr int kTries = 20;
  std::string words;
  for (int i = 0; i < kTries; ++i) {
    words = WordsOfOnePlan(job, waits_late);
    const bool is_disturbed = words.find("differ too much") != std::string::npos;
    if (!is_disturbed) break;
  }
  return words;
}

TEST_CASE("A program that waits where it needs a tensor gets a plan by time", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.order = GENERATE("due", "bins");
  CAPTURE(job.options.order);
  const std::string words = WordsOfPlan(job, true);
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
  const std::string words = WordsOfPlan(job, false);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  CHECK(words.ends_with(" steps, by arrival\n"));
}

TEST_CASE("A plan by arrival needs no times", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.order = "arrival";
  const std::string words = WordsOfPlan(job, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  CHECK(words.find("by time") == std::string::npos);
}

TEST_CASE("A rank alone has no transfers, and says so", "[timed_plans]") {
  SyncJob job;
  job.ranks.rank_count = 1;
  const std::string words = WordsOfPlan(job, true);
  CHECK(job.wrong.lines() == std::vector<std::string>());
  INFO(words);
  CHECK(words.find("plan 1 is by arrival: ") != std::string::npos);
}

TEST_CASE("Orders by time belong to the coordinator caramel, and groups do not",
          "[sync][create][timed_plans]") {
  SyncOptions options;
  options.order = "bins";
  const Status topo = options.Check();
  REQUIRE_FALSE(topo);
  CHECK(topo.error().message() ==
        "order: 'bins': only coordinator 'caramel' orders by time, and the coordinator is 'topo'");
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
