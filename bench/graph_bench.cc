// Question: how long does the pass over a computation graph take, and does the time grow with nodes
// and edges only? The graphs have the node and edge counts of Pumma et al., table I.
//
// State: a graph in memory, without storage. The baseline is a copy of the graph, which also
// touches every node and edge once. The times of the paper are from another machine and printed for
// comparison.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/graph/plan.h"

namespace lmdbio::bench {
namespace {

struct Network {
  const char* name;
  uint32_t node_count;
  uint32_t edge_count;
  uint32_t tensor_count;  // gradients
  double paper_ms;
};

constexpr Network kNetworks[] = {
    {"AlexNet", 655, 893, 16, 6},
    {"VGG16", 1091, 1479, 32, 17},
    {"ResNet18", 1714, 2565, 62, 32},
    {"ResNet34", 2866, 4325, 110, 86},
    {"GoogLeNet", 3499, 4970, 116, 182},
    {"ResNet50", 3988, 6042, 161, 159},
    {"Inception-v3", 6146, 9211, 284, 382},
    {"ResNet101", 7558, 11'499, 314, 594},
    {"ResNet152", 11'128, 16'956, 467, 1274},
};

// A linear congruential generator, so the graphs are the same on every machine. Its low bits have
// short periods; only the high ones are used.
class Numbers {
 public:
  uint32_t Below(uint32_t bound) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>((state_ >> 33) % bound);
  }

 private:
  uint64_t state_ = 1;
};

// Builds a graph like that of a network. Each node depends on one shortly before it; the remaining
// edges skip a little farther. The tensors are in the second half, where gradients are computed.
sync::Graph MakeGraph(const Network& network) {
  constexpr uint32_t kNear = 8;
  constexpr uint32_t kFar = 200;
  sync::Graph graph;
  Numbers numbers;
  const uint32_t half = network.node_count / 2;
  const uint32_t stride = half / network.tensor_count;
  uint32_t tensor_count = 0;
  for (uint32_t node = 0; node < network.node_count; ++node) {
    const bool is_tensor =
        node >= half && node % stride == 0 && tensor_count < network.tensor_count;
    if (is_tensor) {
      sync::Request tensor;
      tensor.name = fmt::format("gradient{}", tensor_count++);
      tensor.shape = {1 + numbers.Below(1 << 18)};
      graph.AddCollective(tensor);
    } else {
      graph.AddNode(fmt::format("node{}", node));
    }
    // Edges lead from smaller to larger numbers, so the graph has no cycle.
    if (node > 0) graph.AddEdge(node - 1 - numbers.Below(std::min(node, kNear)), node);
  }
  while (graph.edge_count() < network.edge_count) {
    const uint32_t to = 1 + numbers.Below(network.node_count - 1);
    graph.AddEdge(to - 1 - numbers.Below(std::min(to, kFar)), to);
  }
  return graph;
}

template <typename Way>
double MedianMs(int repetitions, Way way) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(way());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  return times[static_cast<size_t>(repetitions / 2)];
}

// The slope of log y over log x, which is the power with which the time grows. Least squares over
// all networks.
double SlopeOf(const std::vector<double>& xs, const std::vector<double>& ys) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double x = std::log(xs[i]), y = std::log(ys[i]);
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  const auto n = static_cast<double>(xs.size());
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

int Run(int repetitions) {
  fmt::print("{:<14}{:>8}{:>8}{:>9}{:>10}{:>10}{:>10}{:>12}\n", "network", "nodes", "edges",
             "tensors", "copy ms", "order ms", "plan ms", "paper's ms");
  std::vector<double> sizes, times, copy_times;
  for (const Network& network : kNetworks) {
    const sync::Graph graph = MakeGraph(network);
    const auto ordered = sync::OrderTensors(graph);
    // The figures of the table are the point of the comparison, so a graph with others is an error.
    if (!ordered || graph.node_count() != network.node_count ||
        graph.edge_count() != network.edge_count || ordered->size() != network.tensor_count) {
      fmt::print(stderr, "{}: the graph has a wrong number of nodes, edges or tensors\n",
                 network.name);
      return 1;
    }
    const double copy_ms = MedianMs(repetitions, [&] { return sync::Graph(graph); });
    const double order_ms = MedianMs(repetitions, [&] { return sync::OrderTensors(graph); });
    const double plan_ms =
        MedianMs(repetitions, [&] { return sync::Plan::FromOrder(*ordered, {}, 1).digest(); });
    sizes.push_back(network.node_count + network.edge_count);
    times.push_back(order_ms);
    copy_times.push_back(copy_ms);
    fmt::print("{:<14}{:>8}{:>8}{:>9}{:>10.3f}{:>10.3f}{:>10.3f}{:>12.0f}\n", network.name,
               network.node_count, network.edge_count, network.tensor_count, copy_ms, order_ms,
               plan_ms, network.paper_ms);
  }
  fmt::print("the time grows as (nodes + edges)^{:.2f}, that of the copy as ^{:.2f}\n",
             SlopeOf(sizes, times), SlopeOf(sizes, copy_times));
  return 0;
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  const lmdbio::bench::BenchOptions options = lmdbio::bench::ParseOptions(argc, argv);
  return lmdbio::bench::Run(options.is_tiny ? 3 : 501);
}
