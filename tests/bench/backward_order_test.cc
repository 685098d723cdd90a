// Goal: the replayed networks compute their backward pass in the order of Caramel if asked to, and
// it has their gradients ready earlier where the network has branches.
#include "bench/sync/layers/backward_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/sync/layers/layer_network.h"
#include "bench/sync/layers/layer_schedule.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::bench {
namespace {

using Catch::Detail::Approx;
using test::Good;
using Layers = std::vector<uint32_t>;

LayerNetwork Named(const std::string& name) {
  return Good(ReadNetwork(fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, name), 1));
}

// The layers of a pass in the order in which one thread computes them.
Layers PassOf(const LayerNetwork& network, LayerSchedule& schedule, PassDirection direction) {
  Layers pass;
  schedule.Begin(direction);
  while (!schedule.is_over()) {
    REQUIRE(schedule.has_computable());
    pass.push_back(schedule.Take());
    schedule.Finish(network.layers[pass.back()]);
  }
  return pass;
}

Layers BackwardPass(const LayerNetwork& network, std::span<const uint32_t> order) {
  LayerSchedule schedule(network, std::nullopt, order);
  Layers forward(network.layers.size());
  std::iota(forward.begin(), forward.end(), uint32_t{0});
  CHECK(PassOf(network, schedule, PassDirection::kForward) == forward);
  return PassOf(network, schedule, PassDirection::kBackward);
}

// The mean time at which the last rank has the gradients of a layer, as a share of the pass.
// passes  of the ranks
double MeanReady(const LayerNetwork& network, const std::vector<Layers>& passes) {
  std::vector<double> ready(network.layers.size());
  for (const Layers& pass : passes) {
    double now = 0;
    for (const uint32_t layer : pass) {
      now += network.layers[layer].cost;
      ready[layer] = std::max(ready[layer], now);
    }
  }
  double sum = 0;
  int count = 0;
  for (size_t layer = 0; layer < ready.size(); ++layer) {
    if (network.layers[layer].tensors.empty()) continue;
    sum += ready[layer];
    ++count;
  }
  return sum / count;
}

// Four ranks that take independent layers in random orders.
std::vector<Layers> RandomPasses(const LayerNetwork& network) {
  std::vector<Layers> passes;
  for (uint64_t rank = 0; rank < 4; ++rank) {
    LayerSchedule schedule(network, rank);
    passes.push_back(PassOf(network, schedule, PassDirection::kBackward));
  }
  return passes;
}

// 0 -> 1 -> 3, 0 -> 2 -> 3; the later branch is the longer one.
LayerNetwork Branches() {
  LayerNetwork network;
  network.layers.resize(4);
  network.layers[0].gives = {1, 2};
  network.layers[1].gives = network.layers[2].gives = {3};
  network.layers[1].needs = network.layers[2].needs = {0};
  network.layers[3].needs = {1, 2};
  const double costs[] = {0.1, 0.2, 0.3, 0.4};
  for (uint32_t i = 0; i < 4; ++i) {
    network.layers[i].cost = costs[i];
    network.layers[i].tensors = {i};
  }
  return network;
}

TEST_CASE("The branch with the least work comes first in a greedy backward pass",
          "[bench][order]") {
  const LayerNetwork network = Branches();
  CHECK(BackwardPass(network, {}) == Layers{3, 2, 1, 0});
  CHECK(GreedyBackwardOrder(network) == Layers{3, 1, 2, 0});
  CHECK(BackwardPass(network, GreedyBackwardOrder(network)) == Layers{3, 1, 2, 0});
}

TEST_CASE("A layer without gradients is computed when a gradient needs it", "[bench][order]") {
  LayerNetwork network = Branches();
  network.layers[1].tensors.clear();
  CHECK(GreedyBackwardOrder(network) == Layers{3, 2, 1, 0});
}

TEST_CASE("The ends of a network are branches, too", "[bench][order]") {
  LayerNetwork network = Branches();
  network.layers[1].gives.clear();
  network.layers[2].gives.clear();
  network.layers.pop_back();
  CHECK(BackwardPass(network, {}) == Layers{2, 1, 0});
  CHECK(BackwardPass(network, GreedyBackwardOrder(network)) == Layers{1, 2, 0});
}

TEST_CASE("A network without branches has one order", "[bench][order]") {
  for (const char* const name : {"vgg16", "alexnet", "mobilenet"}) {
    const LayerNetwork network = Named(name);
    const Layers greedy = GreedyBackwardOrder(network);
    CHECK(std::ranges::is_sorted(greedy, std::greater<>()));
    CHECK(greedy == BackwardPass(network, {}));
  }
}

TEST_CASE("Networks with branches have their gradients ready earlier", "[bench][order]") {
  struct ReadyShares {
    const char* name;
    double greedy;
    double plain;
    double random;
  };
  // As docs/caramel.md has them, in percent.
  constexpr ReadyShares kShares[] = {{"googlenet", 32.0, 32.5, 35.2},
                                     {"inception_v3", 39.3, 39.9, 40.6},
                                     {"nasnet_large", 53.2, 53.3, 54.0},
                                     {"resnet50", 49.5, 49.7, 49.8}};
  for (const ReadyShares& expected : kShares) {
    const LayerNetwork network = Named(expected.name);
    const Layers greedy = GreedyBackwardOrder(network);
    CHECK(greedy == BackwardPass(network, greedy));
    const Layers plain = BackwardPass(network, {});
    CHECK(greedy != plain);
    CHECK(MeanReady(network, {greedy}) < MeanReady(network, {plain}));
    CHECK(100 * MeanReady(network, {greedy}) == Approx(expected.greedy).margin(0.051));
    CHECK(100 * MeanReady(network, {plain}) == Approx(expected.plain).margin(0.051));
    CHECK(100 * MeanReady(network, RandomPasses(network)) == Approx(expected.random).margin(0.051));
  }
}

}  // namespace
}  // namespace lmdbio::bench
