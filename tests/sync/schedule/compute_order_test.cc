// Goal: each gradient of the order of computing needs the least time of those that are left; no
// other order has its gradients ready earlier, one after the other; with the new edges the program
// has no other order of its gradients, and none of the edges can be left out.
//
// Method: all orders of the gradients of small random graphs, with needs that a recursive search
// finds; and random orders of the nodes that the edges allow.
#include "lmdbio/sync/schedule/compute_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/random.h"

namespace lmdbio::sync {
namespace {

using lmdbio::test::ForSeeds;
using lmdbio::test::Good;
using lmdbio::test::Random;
using Edges = std::vector<ComputeEdge>;
using NodeSet = std::set<uint32_t>;

struct ComputeGraph {
  std::vector<ComputeNode> nodes;
  std::vector<uint32_t> gradients;
};

struct RandomComputing {
  uint64_t node_count_max = 14;
  uint64_t gradient_count_max = 6;
  uint64_t cost_max = uint64_t{1} << 40;  // so large that no two sums are equal
  uint64_t needs_max = 3;
};

ComputeGraph MakeRandomComputing(Random& random, const RandomComputing& options) {
  ComputeGraph graph;
  graph.nodes.resize(random.Between(1, options.node_count_max));
  // Positions in the graph are no order of the nodes.
  std::vector<uint32_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  random.Shuffle(order);
  for (size_t place = 0; place < order.size(); ++place) {
    ComputeNode& node = graph.nodes[order[place]];
    node.cost_ns = static_cast<int64_t>(random.Below(options.cost_max));
    const uint64_t count = place == 0 ? 0 : random.Below(options.needs_max + 1);
    for (uint64_t i = 0; i < count; ++i) node.needs.push_back(order[random.Below(place)]);
  }
  random.Shuffle(order);
  const uint64_t count = random.Below(options.gradient_count_max + 1);
  order.resize(std::min<size_t>(order.size(), count));
  graph.gradients = order;
  return graph;
}

void AddNeeds(const std::vector<ComputeNode>& nodes, uint32_t node, NodeSet& found) {
  if (!found.insert(node).second) return;
  for (const uint32_t need : nodes[node].needs) AddNeeds(nodes, need, found);
}

int64_t CostOf(const std::vector<ComputeNode>& nodes, const NodeSet& set) {
  int64_t sum_ns = 0;
  for (const uint32_t node : set) sum_ns += nodes[node].cost_ns;
  return sum_ns;
}

// When the gradients are ready if one is completed after the other, in this order.
std::vector<int64_t> ReadyTimes(const ComputeGraph& graph, const std::vector<size_t>& order) {
  std::vector<int64_t> ready;
  NodeSet computed;
  for (const size_t gradient : order) {
    AddNeeds(graph.nodes, graph.gradients[gradient], computed);
    ready.push_back(CostOf(graph.nodes, computed));
  }
  return ready;
}

std::vector<std::vector<int64_t>> ReadyTimesOfAllOrders(const ComputeGraph& graph) {
  std::vector<size_t> order(graph.gradients.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<int64_t>> all;
  do {
    all.push_back(ReadyTimes(graph, order));
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

std::vector<ComputeNode> WithEdges(std::vector<ComputeNode> nodes, const Edges& edges) {
  for (const ComputeEdge& edge : edges) nodes[edge.to].needs.push_back(edge.from);
  return nodes;
}

// The error of an order of nodes: one that is missing or comes twice, or before one that it needs.
std::string ProblemOfNodes(const std::vector<ComputeNode>& nodes,
                           const std::vector<uint32_t>& order) {
  NodeSet computed;
  for (const uint32_t node : order) {
    for (const uint32_t need : nodes[node].needs) {
      if (!computed.contains(need)) return fmt::format("node {} comes before {}", node, need);
    }
    if (!computed.insert(node).second) return fmt::format("node {} comes twice", node);
  }
  return computed.size() == nodes.size() ? "" : "a node is missing";
}

// Computes nodes in a random order that these needs allow. Returns what is wrong with it: a node
// that a gradient needs, but not the present one.
std::string ProblemOfRandomRun(const ComputeGraph& graph, const ComputeOrder& order,
                               const std::vector<ComputeNode>& enforced, Random& random) {
  NodeSet wanted;  // by the gradients so far, and by the present one
  NodeSet computed;
  size_t present = 0;
  NodeSet needed;
  for (const uint32_t node : graph.gradients) AddNeeds(graph.nodes, node, needed);
  while (computed.size() < enforced.size()) {
    while (present < order.gradients.size()) {
      const uint32_t node = graph.gradients[order.gradients[present]];
      AddNeeds(graph.nodes, node, wanted);
      if (!computed.contains(node)) break;
      ++present;
    }
    std::vector<uint32_t> possible;
    for (uint32_t node = 0; node < enforced.size(); ++node) {
      const bool is_possible = std::ranges::all_of(
          enforced[node].needs, [&](uint32_t need) { return computed.contains(need); });
      if (is_possible && !computed.contains(node)) possible.push_back(node);
    }
    if (possible.empty()) return "the edges close a cycle";
    for (const uint32_t node : possible) {
      if (!needed.contains(node) || wanted.contains(node)) continue;
      return fmt::format("node {} can be computed before gradient {}", node, present);
    }
    computed.insert(possible[random.Below(possible.size())]);
  }
  return "";
}

// Whether `to` needs `from` through other nodes, without the edge itself.
bool IsRedundant(const ComputeGraph& graph, const Edges& edges, const ComputeEdge& edge) {
  Edges others = edges;
  others.erase(std::ranges::find(others, edge));
  NodeSet found;
  AddNeeds(WithEdges(graph.nodes, others), edge.to, found);
  return found.contains(edge.from);
}

std::string ProblemOfEdges(const ComputeGraph& graph, const ComputeOrder& order, Random& random) {
  const std::vector<ComputeNode> enforced = WithEdges(graph.nodes, order.edges);
  const std::string problem = ProblemOfNodes(enforced, order.nodes);
  if (!problem.empty()) return problem;
  for (int run = 0; run < 3; ++run) {
    const std::string found = ProblemOfRandomRun(graph, order, enforced, random);
    if (!found.empty()) return found;
  }
  for (const ComputeEdge& edge : order.edges) {
    if (!IsRedundant(graph, order.edges, edge)) continue;
    return fmt::format("the edge from {} to {} is not needed", edge.from, edge.to);
  }
  return "";
}

TEST_CASE("The gradient with the least work comes first, and shared work counts once",
          "[schedule]") {
  // Branches 1 and 2, 3 begin with 0; 4 needs both.
  const std::vector<ComputeNode> nodes = {{5, {}}, {10, {0}}, {3, {0}}, {2, {2}}, {1, {1, 3}}};
  const ComputeOrder order = Good(OrderComputing(nodes, std::vector<uint32_t>{4, 1, 3}));
  CHECK(order.gradients == std::vector<size_t>{2, 1, 0});
  CHECK(order.nodes == std::vector<uint32_t>{0, 2, 3, 1, 4});
  CHECK(order.edges == Edges{{3, 1}});  // 4 needs 1 already
}

TEST_CASE("Of equal gradients the one with fewer nodes comes first, and then the first one",
          "[schedule]") {
  // 1 needs 0, and costs nothing; 2 and 3 are alike.
  const std::vector<ComputeNode> nodes = {{7, {}}, {0, {0}}, {7, {}}, {7, {}}};
  const ComputeOrder order = Good(OrderComputing(nodes, std::vector<uint32_t>{1, 3, 2, 0}));
  CHECK(order.gradients == std::vector<size_t>{1, 2, 3, 0});
  CHECK(order.nodes == std::vector<uint32_t>{3, 2, 0, 1});
  CHECK(order.edges == Edges{{3, 2}, {2, 0}});
}

TEST_CASE("Nodes that no gradient needs come last, and are in no edge", "[schedule]") {
  const std::vector<ComputeNode> nodes = {{1, {3}}, {9, {}}, {1, {}}, {1, {2}}};
  const ComputeOrder order = Good(OrderComputing(nodes, std::vector<uint32_t>{1, 2}));
  CHECK(order.nodes == std::vector<uint32_t>{2, 1, 3, 0});
  CHECK(order.edges == Edges{{2, 1}});
  const ComputeOrder none = Good(OrderComputing(nodes, {}));
  CHECK(none.nodes == std::vector<uint32_t>{1, 2, 3, 0});
  CHECK(none.gradients.empty());
  CHECK(none.edges.empty());
  CHECK(Good(OrderComputing({}, {})).nodes.empty());
}

TEST_CASE("No order has its gradients ready earlier, one after the other", "[schedule]") {
  ForSeeds(3000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const ComputeGraph graph = MakeRandomComputing(random, {});
    const ComputeOrder order = Good(OrderComputing(graph.nodes, graph.gradients));
    const std::vector<int64_t> ready = ReadyTimes(graph, order.gradients);
    const auto all = ReadyTimesOfAllOrders(graph);
    if (ready != std::ranges::min(all)) {
      return fmt::format("gradients are ready at {}, and could be at {}", ready,
                         std::ranges::min(all));
    }
    return ProblemOfEdges(graph, order, random);
  });
}

// Without shared work, the shortest work first has the least sum of ready times of all orders.
TEST_CASE("Branches without shared work are ready as early as possible on average", "[schedule]") {
  ForSeeds(1000, [](uint64_t seed) -> std::string {
    Random random(seed);
    ComputeGraph graph;
    const uint64_t count = random.Between(1, 6);
    for (uint64_t gradient = 0; gradient < count; ++gradient) {
      const uint64_t length = random.Between(1, 4);
      for (uint64_t i = 0; i < length; ++i) {
        ComputeNode node{.cost_ns = static_cast<int64_t>(random.Below(5))};
        if (i > 0) node.needs.push_back(static_cast<uint32_t>(graph.nodes.size() - 1));
        graph.nodes.push_back(node);
      }
      graph.gradients.push_back(static_cast<uint32_t>(graph.nodes.size() - 1));
    }
    const ComputeOrder order = Good(OrderComputing(graph.nodes, graph.gradients));
    const auto sum_of = [](const std::vector<int64_t>& times) {
      return std::accumulate(times.begin(), times.end(), int64_t{0});
    };
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& times : ReadyTimesOfAllOrders(graph)) least = std::min(least, sum_of(times));
    const int64_t sum = sum_of(ReadyTimes(graph, order.gradients));
    if (sum != least) return fmt::format("the sum is {}, and could be {}", sum, least);
    return ProblemOfEdges(graph, order, random);
  });
}

TEST_CASE("Equal costs, and needs that are named twice, leave a legal order", "[schedule]") {
  ForSeeds(2000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const ComputeGraph graph = MakeRandomComputing(
        random, {.node_count_max = 30, .gradient_count_max = 30, .cost_max = 3});
    const ComputeOrder order = Good(OrderComputing(graph.nodes, graph.gradients));
    if (Good(OrderComputing(graph.nodes, graph.gradients)).edges != order.edges) return "chance";
    NodeSet computed;
    std::vector<bool> is_chosen(graph.gradients.size());
    for (const size_t chosen : order.gradients) {
      const auto left_of = [&](size_t gradient) {
        NodeSet with = computed;
        AddNeeds(graph.nodes, graph.gradients[gradient], with);
        return CostOf(graph.nodes, with);
      };
      for (size_t other = 0; other < graph.gradients.size(); ++other) {
        if (is_chosen[other] || left_of(other) >= left_of(chosen)) continue;
        return fmt::format("gradient {} has less work than {}", other, chosen);
      }
      is_chosen[chosen] = true;
      AddNeeds(graph.nodes, graph.gradients[chosen], computed);
    }
    return ProblemOfEdges(graph, order, random);
  });
}

TEST_CASE("A long chain with many gradients keeps its order", "[schedule]") {
  constexpr uint32_t kCount = 20'000;
  constexpr uint32_t kStride = 100;  // 200 gradients, the last one first
  std::vector<ComputeNode> nodes(kCount);
  std::vector<uint32_t> gradients;
  for (uint32_t node = 0; node < kCount; ++node) {
    nodes[node] = {kTimeMaxNs / kCount, {}};
    if (node > 0) nodes[node].needs = {node - 1};
    if (node % kStride == 0) gradients.insert(gradients.begin(), node);
  }
  const ComputeOrder order = Good(OrderComputing(nodes, gradients));
  REQUIRE(order.gradients.size() == 200);
  for (size_t i = 0; i < order.gradients.size(); ++i) CHECK(order.gradients[i] == 199 - i);
  CHECK(std::ranges::is_sorted(order.nodes));
  CHECK(order.nodes.size() == kCount);
  CHECK(order.edges.empty());  // a chain has one order
}

std::string ErrorOf(const std::vector<ComputeNode>& nodes, const std::vector<uint32_t>& gradients) {
  const auto order = OrderComputing(nodes, gradients);
  REQUIRE_FALSE(order.has_value());
  CHECK(order.error().code() == ErrorCode::kInvalidArgument);
  CHECK(order.error().message().find('\n') == std::string::npos);
  return order.error().message();
}

TEST_CASE("A malformed graph is refused by one line", "[schedule]") {
  CHECK(ErrorOf({{1, {}}, {1, {2}}}, {}) == "node 1 needs node 2, and the graph has 2 nodes");
  CHECK(ErrorOf({{1, {0}}}, {0}) == "node 0 depends on itself: the graph has a cycle");
  // The walk to the cycle of 1 and 3 begins outside of it.
  const std::string cycle = ErrorOf({{1, {3}}, {1, {2, 3}}, {1, {}}, {1, {1}}}, {0});
  CHECK((cycle == "node 1 depends on itself: the graph has a cycle" ||
         cycle == "node 3 depends on itself: the graph has a cycle"));
  CHECK(ErrorOf({{1, {}}}, {0, 1}) == "gradient 1: there is no node 1; the graph has 1 nodes");
  CHECK(ErrorOf({{1, {}}, {1, {}}}, {1, 0, 1}) == "gradient 2: node 1 is a gradient already");
  const std::string expected =
      fmt::format("expected 0 or more, and at most {} ns of all nodes together", int64_t{1} << 56);
  CHECK(ErrorOf({{1, {}}, {-1, {}}}, {}) == "node 1: it costs -1 ns; " + expected);
  CHECK(ErrorOf({{kTimeMaxNs, {}}, {0, {}}, {1, {}}}, {}) == "node 2: it costs 1 ns; " + expected);
  CHECK(ErrorOf({{std::numeric_limits<int64_t>::max(), {}}}, {}).find(expected) !=
        std::string::npos);
  CHECK(Good(OrderComputing(std::vector<ComputeNode>{{kTimeMaxNs, {}}, {0, {}}},
                            std::vector<uint32_t>{0, 1}))
            .gradients == std::vector<size_t>{1, 0});
}

}  // namespace
}  // namespace lmdbio::sync
