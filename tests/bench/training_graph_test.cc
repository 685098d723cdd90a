// Goal: the graph of a training has the nodes, edges and order that its rules give by hand, and no
// gradient comes before one on which it depends.
#include "bench/sync/layers/training_graph.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/graph/graph.h"
#include "tests/support/catch.h"

namespace lmdbio::bench {
namespace {

// Adds a layer with tensors "LAYER.0", "LAYER.1", ... of these sizes.
void AddLayer(LayerNetwork& network, const std::string& name, const std::vector<uint32_t>& needs,
              const std::vector<uint64_t>& counts) {
  const auto place = static_cast<uint32_t>(network.layers.size());
  Layer layer;
  layer.name = name;
  layer.needs = needs;
  for (const uint32_t need : needs) network.layers[need].gives.push_back(place);
  for (const uint64_t count : counts) {
    const std::string tensor = fmt::format("{}.{}", name, layer.tensors.size());
    layer.tensors.push_back(static_cast<uint32_t>(network.tensors.size()));
    network.tensors.push_back({tensor, count});
  }
  network.layers.push_back(std::move(layer));
}

// a -> b, c; b, c -> d -> e. Layer d has no tensor.
LayerNetwork Diamond() {
  LayerNetwork network;
  AddLayer(network, "a", {}, {7});
  AddLayer(network, "b", {0}, {5, 3});
  AddLayer(network, "c", {0}, {4});
  AddLayer(network, "d", {1, 2}, {});
  AddLayer(network, "e", {3}, {6});
  return network;
}

// "name: size, depth; ..." in the order of the pass.
std::string Described(const std::vector<sync::OrderedTensor>& ordered) {
  std::string text;
  for (const sync::OrderedTensor& one : ordered) {
    text += fmt::format("{}: {}, {}; ", one.tensor.name, one.tensor.shape.at(0), one.depth);
  }
  return text;
}

// By hand. Nodes: 2 inputs, 5 tensors, 5 layers, 2 of the loss, 5 gradients of inputs, 1 sum (at
// a), 4 for each of 5 tensors, 1 step. Edges: 1 + 5 + 5 into the layers, 2 x 2 into the loss and
// its gradient, 4 + 3 + 2 x 3 + 3 into the gradients of inputs of b, c, d and e, 2 into the sum,
// 5 x 2 into the gradients of tensors, 5 into the allreduces, 5 x 3 into the updates, 6 into the
// step.
TEST_CASE("The graph of a diamond has the nodes and edges of the rules", "[bench][graph]") {
  const TrainingGraph training = MakeTrainingGraph(Diamond());
  CHECK(training.graph.node_count() == 41);
  CHECK(training.graph.edge_count() == 69);
}

// Depths by hand: layers a 1, b and c 2, d 3, e 4; the gradient of the loss 5. The gradient of a
// tensor is one deeper than that of its layer, and its allreduce two deeper. Gradients of layers: e
// 5, d 6, b and c 7, a 9, which is a sum. At equal depth, the later layer was added first.
TEST_CASE("The order of a diamond is that of its backward pass", "[bench][graph]") {
  const TrainingGraph training = MakeTrainingGraph(Diamond());
  const auto ordered = sync::OrderTensors(training.graph, {training.step});
  REQUIRE(ordered);
  CHECK(Described(*ordered) == "e.0: 6, 7; c.0: 4, 9; b.0: 5, 9; b.1: 3, 9; a.0: 7, 11; ");
  for (const sync::OrderedTensor& one : *ordered) CHECK(one.needs_up_to == -1);
  const auto all = sync::OrderTensors(training.graph);
  REQUIRE(all);
  CHECK(Described(*all) == Described(*ordered));
}

TEST_CASE("The loss needs no gradient", "[bench][graph]") {
  const TrainingGraph training = MakeTrainingGraph(Diamond());
  const auto ordered = sync::OrderTensors(training.graph, {training.loss});
  REQUIRE(ordered);
  CHECK(ordered->empty());
}

TEST_CASE("Each result without a taker has the gradient of the loss", "[bench][graph]") {
  LayerNetwork network;
  AddLayer(network, "stem", {}, {1});
  AddLayer(network, "head", {0}, {1});
  AddLayer(network, "side", {0}, {1});
  const TrainingGraph training = MakeTrainingGraph(network);
  const auto ordered = sync::OrderTensors(training.graph, {training.step});
  REQUIRE(ordered);
  // Layers 1, 2, 2; loss gradient 3; gradients of inputs 4; their sum 5.
  CHECK(Described(*ordered) == "side.0: 1, 5; head.0: 1, 5; stem.0: 1, 7; ");
}

// The positions of the tensors' allreduces.
std::map<std::string, size_t> Positions(const LayerNetwork& network) {
  const TrainingGraph training = MakeTrainingGraph(network);
  const auto ordered = sync::OrderTensors(training.graph, {training.step});
  REQUIRE(ordered);
  REQUIRE(ordered->size() == network.tensors.size());
  std::map<std::string, size_t> positions;
  for (const sync::OrderedTensor& one : *ordered) positions[one.tensor.name] = positions.size();
  return positions;
}

// Layers stand in forward order, so the layers that need layer i are known from those behind it.
TEST_CASE("A gradient of a network comes after those that it depends on", "[bench][graph]") {
  const std::string name = GENERATE("googlenet", "inception_v3", "resnet50", "vgg16");
  const auto network = ReadNetwork(fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, name), 1);
  REQUIRE(network);
  const std::map<std::string, size_t> positions = Positions(*network);
  for (size_t i = 0; i < network->layers.size(); ++i) {
    std::vector<bool> is_behind(network->layers.size());  // its gradient comes before that of i
    is_behind[i] = true;
    for (size_t j = i + 1; j < network->layers.size(); ++j) {
      const Layer& later = network->layers[j];
      for (const uint32_t need : later.needs) is_behind[j] = is_behind[j] || is_behind[need];
      if (!is_behind[j]) continue;
      for (const uint32_t own : network->layers[i].tensors) {
        for (const uint32_t other : later.tensors) {
          CHECK(positions.at(network->tensors[other].name) <
                positions.at(network->tensors[own].name));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lmdbio::bench
