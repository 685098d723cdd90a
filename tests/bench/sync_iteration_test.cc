// Goal: an iteration of sync_bench computes, submits and waits in the order that its variant asks
// for, its times add up to that of the run, and its figures are those of the paper.
//
// Method: the work loop and the variant of this test record each call. So the order of all events
// is the oracle.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/input_load.h"
#include "bench/sync/iteration_runner.h"
#include "bench/sync/layers/backward_order.h"
#include "bench/sync/report/iteration_figures.h"
#include "bench/sync/work_loop.h"
#include "bench/sync/workload.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::bench {
namespace {

using test::Good;
using Events = std::vector<std::string>;

constexpr uint64_t kUnits = 12;  // 1 for each layer in the forward pass, 2 in the backward pass
constexpr int kRanks = 2;        // their sum is 3 times the values of rank 0

std::mutex g_mutex;
Events g_events;

void Note(std::string event) {
  const std::lock_guard lock(g_mutex);
  g_events.push_back(std::move(event));
}

Events TakeEvents() {
  const std::lock_guard lock(g_mutex);
  return std::exchange(g_events, {});
}

// Layers 1 and 2 are independent of each other; layer 2 has no gradients.
LayerNetwork Diamond() {
  LayerNetwork network;
  network.name = "diamond";
  for (uint32_t i = 0; i < 4; ++i) {
    network.tensors.push_back({fmt::format("t{}", i), 10 + i});
    Layer& layer = network.layers.emplace_back();
    layer.name = fmt::format("l{}", i);
    layer.cost = 0.25;
  }
  network.layers[0].gives = {1, 2};
  network.layers[1].needs = network.layers[2].needs = {0};
  network.layers[1].gives = network.layers[2].gives = {3};
  network.layers[3].needs = {1, 2};
  network.layers[0].tensors = {0};
  network.layers[1].tensors = {1, 2};
  network.layers[3].tensors = {3};
  return network;
}

// Makes the sum of a gradient when it is awaited.
class RecordingSync final : public GradientSync {
 public:
  explicit RecordingSync(Gradients& gradients) : gradients_(gradients) {}

  void Submit(uint32_t tensor) override {
    Note(fmt::format("submit {}", tensor));
    const std::lock_guard lock(mutex_);
    CHECK(open_.insert(tensor).second);
  }

  bool Wait(uint32_t tensor) override {
    Note(fmt::format("wait {}", tensor));
    const std::lock_guard lock(mutex_);
    Sum(tensor);
    return true;
  }

  Status WaitAll() override {
    const std::lock_guard lock(mutex_);
    Note(fmt::format("wait for {} left", open_.size()));
    while (!open_.empty()) Sum(*open_.begin());
    return {};
  }

  Traffic traffic() override { return {}; }

  int lost_tensor = -1;  // is never summed

 private:
  void Sum(uint32_t tensor) {
    CHECK(open_.erase(tensor) == 1);
    if (static_cast<int>(tensor) == lost_tensor) return;
    for (float& value : gradients_.tensor(tensor)) value *= 3;
  }

  Gradients& gradients_;
  std::mutex mutex_;
  std::set<uint32_t> open_;
};

// A rank that runs iterations.
class Rank {
 public:
  Rank(BenchRunKind kind, bool is_windowed, const WorkloadOptions& options)
      : workload_(network_, options),
        runner_({network_, gradients_, workload_, window_, &sync, 0, kRanks}, kind, is_windowed) {
    TakeEvents();
  }

  Result<double> Iterate(uint64_t iteration) { return runner_.Iterate(iteration); }
  uint64_t checksum() const { return runner_.checksum(); }

 private:
  const LayerNetwork network_ = Diamond();
  Gradients gradients_{network_};
  Workload workload_;
  InputLoad input_{{}};
  InputWindow window_{input_};

 public:
  RecordingSync sync{gradients_};

 private:
  IterationRunner runner_;
};

constexpr WorkloadOptions kOneThread = {.units = kUnits};

TEST_CASE("A layer with windows waits for its gradients before its next forward work",
          "[iteration]") {
  Rank rank(BenchRunKind::kTrain, true, kOneThread);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    CHECK(Good(rank.Iterate(iteration)) > 0);
    CHECK(TakeEvents() == Events{"backward 3", "submit 3", "backward 2", "backward 1", "submit 1",
                                 "submit 2", "backward 0", "submit 0", "wait 0", "forward 0",
                                 "wait 1", "wait 2", "forward 1", "forward 2", "wait 3",
                                 "forward 3", "wait for 0 left"});
  }
}

TEST_CASE("Without windows an iteration waits for all gradients after its backward pass",
          "[iteration]") {
  Rank rank(BenchRunKind::kTrain, false, kOneThread);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    CHECK(Good(rank.Iterate(iteration)) > 0);
    CHECK(TakeEvents() == Events{"forward 0", "forward 1", "forward 2", "forward 3", "backward 3",
                                 "submit 3", "backward 2", "backward 1", "submit 1", "submit 2",
                                 "backward 0", "submit 0", "wait for 4 left"});
  }
}

// Layer 1 has gradients, and layer 2 has none; both are as long.
TEST_CASE("A greedy backward pass has its gradients ready first", "[iteration]") {
  WorkloadOptions options = kOneThread;
  options.backward_order = GreedyBackwardOrder(Diamond());
  Rank rank(BenchRunKind::kTrain, true, options);
  for (uint64_t iteration = 0; iteration < 2; ++iteration) {
    Good(rank.Iterate(iteration));
    CHECK(TakeEvents() == Events{"backward 3", "submit 3", "backward 1", "submit 1", "submit 2",
                                 "backward 2", "backward 0", "submit 0", "wait 0", "forward 0",
                                 "wait 1", "wait 2", "forward 1", "forward 2", "wait 3",
                                 "forward 3", "wait for 0 left"});
  }
}

TEST_CASE("Both orders of the passes do the same work", "[iteration]") {
  Rank one(BenchRunKind::kTrain, false, kOneThread);
  Rank other(BenchRunKind::kTrain, true, kOneThread);
  Good(one.Iterate(0));
  Good(other.Iterate(0));
  CHECK(one.checksum() == other.checksum());
  CHECK(one.checksum() != 0);
}

TEST_CASE("A wrong sum is found in its own iteration, before it is overwritten", "[iteration]") {
  for (const bool is_windowed : {false, true}) {
    Rank rank(BenchRunKind::kTrain, is_windowed, kOneThread);
    Good(rank.Iterate(0));
    rank.sync.lost_tensor = 2;
    const Result<double> wrong = rank.Iterate(1);
    REQUIRE_FALSE(wrong.has_value());
    CHECK(wrong.error().code() == ErrorCode::kInternal);
    CHECK(wrong.error().message().find("t2: iteration 1: element 0") != std::string::npos);
  }
}

TEST_CASE("An idle variant gets no gradients, and is not waited for", "[iteration]") {
  for (const bool is_windowed : {false, true}) {
    Rank rank(BenchRunKind::kIdle, is_windowed, kOneThread);
    Good(rank.Iterate(0));
    for (const std::string& event : TakeEvents()) {
      CHECK((event.starts_with("forward") || event.starts_with("backward")));
    }
  }
}

TEST_CASE("Communication alone submits from the last gradient to the first one", "[iteration]") {
  for (const bool is_windowed : {false, true}) {
    Rank rank(BenchRunKind::kAlone, is_windowed, kOneThread);
    Good(rank.Iterate(0));
    CHECK(TakeEvents() ==
          Events{"submit 3", "submit 2", "submit 1", "submit 0", "wait for 4 left"});
  }
}

size_t PlaceOf(const Events& events, const std::string& event) {
  CHECK(std::count(events.begin(), events.end(), event) == 1);
  return static_cast<size_t>(std::find(events.begin(), events.end(), event) - events.begin());
}

TEST_CASE("Threads and random orders keep each wait between its gradient and its layer",
          "[iteration]") {
  const LayerNetwork network = Diamond();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rank rank(
        BenchRunKind::kTrain, true,
        {.units = kUnits, .threads = 1 + static_cast<uint32_t>(seed % 3), .shuffle_seed = seed});
    for (uint64_t iteration = 0; iteration < 3; ++iteration) {
      Good(rank.Iterate(iteration));
      const Events events = TakeEvents();
      CHECK(events.back() == "wait for 0 left");
      for (uint32_t index = 0; index < network.layers.size(); ++index) {
        const size_t forward = PlaceOf(events, fmt::format("forward {}", index));
        const size_t backward = PlaceOf(events, fmt::format("backward {}", index));
        CHECK(backward < forward);
        for (const uint32_t tensor : network.layers[index].tensors) {
          const size_t submitted = PlaceOf(events, fmt::format("submit {}", tensor));
          const size_t awaited = PlaceOf(events, fmt::format("wait {}", tensor));
          CHECK(backward < submitted);
          CHECK(submitted < awaited);
          CHECK(awaited < forward);
          // No wait stands before the work that the layer needs.
          for (const uint32_t needed : network.layers[index].needs) {
            CHECK(PlaceOf(events, fmt::format("forward {}", needed)) < awaited);
          }
        }
      }
    }
  }
}

// A sleep never ends early, so the limits of the next two cases hold on any machine.
std::chrono::nanoseconds TimeOf(Workload& workload, PassDirection first, const LayerCalls& calls) {
  const auto start = std::chrono::steady_clock::now();
  workload.Iterate(first, calls);
  return std::chrono::steady_clock::now() - start;
}

TEST_CASE("An accelerator begins a layer after the gradients that it had to wait for",
          "[iteration]") {
  const LayerNetwork network = Diamond();
  // 20 ms for each layer in the forward pass, 40 ms in the backward pass.
  Workload workload(network, {.units = 240, .accelerator_units_per_second = 1000});
  LayerCalls calls;
  calls.needed = [](const Layer&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return true;
  };
  calls.ready = [](const Layer&) {};
  constexpr auto kLeast = 4 * std::chrono::milliseconds(30 + 20 + 40);
  CHECK(TimeOf(workload, PassDirection::kForward, calls) >= kLeast);
  CHECK(TimeOf(workload, PassDirection::kBackward, calls) >= kLeast);
}

TEST_CASE("An accelerator does no work before an iteration", "[iteration]") {
  const LayerNetwork network = Diamond();
  Workload workload(network, {.units = 12, .accelerator_units_per_second = 1000});
  LayerCalls calls;
  calls.ready = [](const Layer&) {};
  for (const PassDirection first : {PassDirection::kBackward, PassDirection::kForward}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(TimeOf(workload, first, calls) >= std::chrono::milliseconds(12));
  }
}

TEST_CASE("Times of ranks become those of iterations", "[figures]") {
  const std::vector<double> times = {1, 2, 3, /* rank 1 */ 2, 1, 4};
  CHECK(JoinRankTimes(RankJoin::kSlowest, times, 3) == std::vector<double>{2, 2, 4});
  CHECK(JoinRankTimes(RankJoin::kQuickest, times, 3) == std::vector<double>{1, 1, 3});
  // Rank 1 ends the first iteration last, both the second one, and rank 1 the third one.
  CHECK(JoinRankTimes(RankJoin::kLastEnd, times, 3) == std::vector<double>{2, 1, 4});
}

TEST_CASE("Times by the last end add up to the time of the rank that took longest", "[figures]") {
  std::mt19937_64 chance(1);
  for (size_t rank_count = 1; rank_count <= 5; ++rank_count) {
    constexpr size_t kIterations = 20;
    std::vector<double> times;
    double longest = 0;
    for (size_t rank = 0; rank < rank_count; ++rank) {
      double sum = 0;
      for (size_t i = 0; i < kIterations; ++i) {
        times.push_back(static_cast<double>(chance() % 1000));
        sum += times.back();
      }
      longest = std::max(longest, sum);
    }
    const auto joined = JoinRankTimes(RankJoin::kLastEnd, times, kIterations);
    CHECK(joined.size() == kIterations);
    CHECK(std::accumulate(joined.begin(), joined.end(), 0.0) == longest);
  }
}

TEST_CASE("Overlap has the coefficients of Hashemi et al. 3.1", "[figures]") {
  const auto of = [](double iteration_ms, double computing_ms, double alone_ms) {
    const std::optional<Overlap> overlap = OverlapOf(iteration_ms, computing_ms, alone_ms);
    REQUIRE(overlap.has_value());
    return *overlap;
  };
  // All of a short communication is hidden.
  CHECK(of(100, 100, 50).rho == Approx(0.5));
  CHECK(of(100, 100, 50).alpha == Approx(1));
  CHECK(of(100, 100, 50).utilisation == Approx(1));
  CHECK(of(100, 100, 50).bound_ratio == Approx(1));
  // One wait at the end, rho = 1: only the backward pass, two thirds of computing, hides anything.
  CHECK(of(400.0 / 3, 100, 100).alpha == Approx(2.0 / 3));
  CHECK(of(400.0 / 3, 100, 100).utilisation == Approx(0.75));
  CHECK(of(400.0 / 3, 100, 100).bound_ratio == Approx(4.0 / 3));
  // The longer one is the communication: nothing hidden, all of computing hidden.
  CHECK(of(300, 100, 200).alpha == Approx(0).margin(1e-12));
  CHECK(of(300, 100, 200).utilisation == Approx(1.0 / 3));
  CHECK(of(300, 100, 200).bound_ratio == Approx(1.5));
  CHECK(of(200, 100, 200).alpha == Approx(1));
  // Both together are slower than one after the other.
  CHECK(of(360, 100, 200).alpha == Approx(-0.6));
}

TEST_CASE("Utilisation is the share of computing in an iteration", "[figures]") {
  std::mt19937_64 chance(1);
  for (int i = 0; i < 1000; ++i) {
    const auto any = [&] { return 1 + static_cast<double>(chance() % 1'000'000) * 1e-3; };
    const double iteration_ms = any();
    const double computing_ms = any();
    const double alone_ms = any();
    const std::optional<Overlap> overlap = OverlapOf(iteration_ms, computing_ms, alone_ms);
    REQUIRE(overlap.has_value());
    CHECK(overlap->utilisation == Approx(computing_ms / iteration_ms));
    CHECK(overlap->alpha * std::min(computing_ms, alone_ms) ==
          Approx(computing_ms + alone_ms - iteration_ms).margin(1e-6));
  }
}

TEST_CASE("Times that are missing have no overlap", "[figures]") {
  CHECK_FALSE(OverlapOf(0, 1, 1).has_value());
  CHECK_FALSE(OverlapOf(1, 0, 1).has_value());
  CHECK_FALSE(OverlapOf(1, 1, 0).has_value());
}

}  // namespace
}  // namespace lmdbio::bench

// The work loop: records the layer and the pass, and does nothing.
extern "C" uint64_t sync_work(const uint64_t*, uint64_t units, uint64_t seed) {
  lmdbio::bench::Note(fmt::format("{} {}", units == 1 ? "forward" : "backward", seed - 1));
  return units * 100 + seed;
}

extern "C" void sync_work_fill(uint64_t* words) { words[0] = 1; }
