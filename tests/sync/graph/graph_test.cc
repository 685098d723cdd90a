// Goal: the order of a graph respects its dependencies, is the documented one, and is the same for
// the same graph.
#include "lmdbio/sync/graph/graph.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::MakeRandomGraph;
using test::Random;
using test::RandomGraph;
using test::TensorOf;

std::string Joined(const std::vector<OrderedTensor>& ordered) {
  std::string names;
  for (const OrderedTensor& tensor : ordered) names += tensor.tensor.name + " ";
  return names;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Allreduce0 and 1 are siblings; 2 needs 0 and 3 needs 2; 4 is as deep as 3 and needs none.
TEST_CASE("The order of figure 6.14 is that of the dissertation", "[control][graph]") {
  Graph graph;
  const auto root = graph.AddNode("root");
  const auto left = graph.AddNode("left");
  const auto allreduce4 = graph.AddCollective(TensorOf("Allreduce4", 1));
  const auto allreduce0 = graph.AddCollective(TensorOf("Allreduce0", 1));
  const auto allreduce1 = graph.AddCollective(TensorOf("Allreduce1", 1));
  const auto allreduce2 = graph.AddCollective(TensorOf("Allreduce2", 1));
  const auto allreduce3 = graph.AddCollective(TensorOf("Allreduce3", 1));
  graph.AddEdge(root, left);
  graph.AddEdge(left, allreduce0);
  graph.AddEdge(left, allreduce1);
  graph.AddEdge(allreduce0, allreduce2);
  graph.AddEdge(allreduce2, allreduce3);
  auto last = root;
  for (int i = 0; i < 4; ++i) {
    const auto next = graph.AddNode("right");
    graph.AddEdge(last, next);
    last = next;
  }
  graph.AddEdge(last, allreduce4);
  const auto ordered = OrderTensors(graph, {allreduce1, allreduce3, allreduce4});
  REQUIRE(ordered);
  REQUIRE(Joined(*ordered) == "Allreduce0 Allreduce1 Allreduce2 Allreduce3 Allreduce4 ");
  std::vector<uint32_t> levels;
  std::vector<int64_t> needs;
  for (const OrderedTensor& tensor : *ordered) levels.push_back(tensor.level);
  for (const OrderedTensor& tensor : *ordered) needs.push_back(tensor.needs_up_to);
  REQUIRE(levels == std::vector<uint32_t>{0, 0, 1, 2, 0});
  REQUIRE(needs == std::vector<int64_t>{-1, -1, 0, 2, -1});
}

TEST_CASE("Only nodes that the fetches need are ordered", "[control][graph]") {
  Graph graph;
  const auto a = graph.AddCollective(TensorOf("a", 1));
  const auto b = graph.AddCollective(TensorOf("b", 1));
  const auto c = graph.AddCollective(TensorOf("c", 1));
  graph.AddEdge(a, b);
  graph.AddEdge(c, c);  // a cycle that b does not need
  REQUIRE(Joined(*OrderTensors(graph, {b})) == "a b ");
  REQUIRE(Joined(*OrderTensors(graph, {b, a, b})) == "a b ");
  REQUIRE(OrderTensors(graph, {c}).error().code() == ErrorCode::kInvalidArgument);
  REQUIRE(Joined(*OrderTensors(Graph(), {})).empty());
}

TEST_CASE("Invalid graphs are refused, naming the node", "[control][graph]") {
  Graph graph;
  const auto a = graph.AddNode("first");
  const auto b = graph.AddNode("second");
  graph.AddEdge(a, b);
  graph.AddEdge(b, a);
  const auto cyclic = OrderTensors(graph);  // every node is needed by another one
  REQUIRE_FALSE(cyclic);
  REQUIRE(cyclic.error().code() == ErrorCode::kInvalidArgument);
  REQUIRE((Contains(cyclic.error().message(), "first") ||
           Contains(cyclic.error().message(), "second")));

  Graph twice;
  twice.AddCollective(TensorOf("same", 1));
  twice.AddCollective(TensorOf("same", 2));
  const auto named_twice = OrderTensors(twice);
  REQUIRE_FALSE(named_twice);
  REQUIRE(Contains(named_twice.error().message(), "same"));

  const auto no_node = OrderTensors(Graph(), {0});
  REQUIRE_FALSE(no_node);
  REQUIRE(no_node.error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("A graph may be one long chain", "[control][graph]") {
  constexpr uint32_t kNodes = 300'000;
  Graph graph;
  auto last = graph.AddNode("root");
  for (uint32_t i = 1; i < kNodes; ++i) {
    const auto next = i % 1000 == 0 ? graph.AddCollective(TensorOf(fmt::format("t{}", i), 1))
                                    : graph.AddNode("node");
    graph.AddEdge(last, next);
    last = next;
  }
  const auto ordered = OrderTensors(graph, {last});
  REQUIRE(ordered);
  REQUIRE(ordered->size() == (kNodes - 1) / 1000);
  REQUIRE(ordered->back().level == ordered->size() - 1);
  REQUIRE(ordered->back().needs_up_to == static_cast<int64_t>(ordered->size()) - 2);
}

std::string ProblemOfOrder(const RandomGraph& graph, const std::vector<OrderedTensor>& ordered) {
  std::vector<size_t> tensors;
  for (const OrderedTensor& tensor : ordered) {
    tensors.push_back(graph.TensorNamed(tensor.tensor.name));
    const size_t node = graph.node_of[tensors.back()];
    if (tensor.depth != graph.depth[node]) return fmt::format("depth of node {}", node);
    if (tensor.level != graph.level[node]) return fmt::format("level of node {}", node);
    if (tensor.tensor != graph.tensors[tensors.back()]) return fmt::format("tensor {}", node);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t needs_up_to = -1;
    for (size_t j = 0; j < tensors.size(); ++j) {
      if (graph.Needs(tensors[i], tensors[j])) needs_up_to = static_cast<int64_t>(j);
    }
    if (needs_up_to >= static_cast<int64_t>(i)) return fmt::format("child {} before its parent", i);
    if (needs_up_to != ordered[i].needs_up_to) return fmt::format("needs_up_to of {}", i);
    if (i == 0) continue;
    const auto key = [&](size_t place) {
      return std::pair(ordered[place].depth, graph.node_of[tensors[place]]);
    };
    if (key(i - 1) >= key(i)) return fmt::format("{} and {} are in the wrong order", i - 1, i);
  }
  return "";
}

TEST_CASE("The order of random graphs agrees with their closure", "[control][graph]") {
  ForSeeds(10'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const auto node_count = static_cast<uint32_t>(random.Between(1, 24));
    RandomGraph graph = MakeRandomGraph(random, node_count, 1);
    const auto all = OrderTensors(graph.graph);
    if (!all) return all.error().message();
    if (all->size() != graph.tensors.size()) return "not all are ordered";
    if (std::string problem = ProblemOfOrder(graph, *all); !problem.empty()) return problem;
    // With one fetch: the collectives that it needs, and itself, in the same order.
    const auto fetch = static_cast<uint32_t>(random.Below(node_count));
    std::string expected;
    for (const OrderedTensor& tensor : *all) {
      const uint32_t node = graph.node_of[graph.TensorNamed(tensor.tensor.name)];
      if (node == fetch || graph.reaches[node][fetch] != 0) expected += tensor.tensor.name + " ";
    }
    const auto some = OrderTensors(graph.graph, {fetch});
    if (!some || Joined(*some) != expected) return fmt::format("fetch {}", fetch);
    // One edge backwards makes a cycle.
    const auto other = static_cast<uint32_t>(random.Below(node_count));
    graph.graph.AddEdge(fetch, other);
    const bool is_cycle = fetch == other || graph.reaches[other][fetch] != 0;
    return OrderTensors(graph.graph).has_value() == is_cycle ? "a cycle is not seen as it is" : "";
  });
}

}  // namespace
}  // namespace lmdbio::sync
