// Question: how long does the pass over the computation graph of a network take, does the time grow
// with nodes and edges only, and which share of a training is it?
//
// State: a graph in memory, without storage; training_graph.h has its rules. The baseline is a copy
// of the graph, which also touches every node and edge once. The figures of dissertation 6.4.2,
// table 6.1, are printed beside. They are from another machine, and its graphs are those of
// TensorFlow, which has more nodes for a layer.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/layers/training_graph.h"
#include "lmdbio/base/status.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/graph/plan.h"

namespace lmdbio::bench {
namespace {

// Table 6.1 of the dissertation.
struct PaperFigures {
  uint32_t node_count;
  uint32_t edge_count;
  double ms;
  double percent;  // of a training on 12,288 ranks
};

struct NetworkRow {
  const char* network;  // in bench/sync/networks
  std::optional<PaperFigures> paper;
};

// The table lacks NASNet, whose graph here is about as large as the paper's larger ones.
constexpr NetworkRow kRows[] = {
    {"alexnet", {{655, 893, 6, 0.02}}},
    {"vgg16", {{1091, 1479, 17, 0.03}}},
    {"resnet18", {{1714, 2565, 32, 0.18}}},
    {"resnet34", {{2866, 4325, 86, 0.37}}},
    {"googlenet", {{3499, 4970, 182, 0.89}}},
    {"resnet50", {{3988, 6042, 159, 0.04}}},
    {"inception_v3", {{6146, 9211, 382, 1.12}}},
    {"resnet101", {{7558, 11'499, 594, 1.49}}},
    {"resnet152", {{11'128, 16'956, 1274, 2.33}}},
    {"nasnet_large", std::nullopt},
};

// The estimate of a training: the work of sync_bench's schedule, a forward pass and a backward pass
// of twice its work, in all iterations. Data, communication and updates take no time and each rank
// computes at the peak rate, so the training is too short and the share of the graph pass too high.
constexpr double kTrainingImages = 1'281'167.0 * 90;  // ImageNet-1k, 90 epochs: He et al.
constexpr double kTrainingRanks = 12'288;             // of table 6.1
// The peak in single precision of NVIDIA's V100, which the paper used: 15.7 Tflop/s.
constexpr double kMaddsPerSecond = 7.85e12;

double TrainingMs(const LayerNetwork& network) {
  return 1e3 * 3 * network.madds * kTrainingImages / (kTrainingRanks * kMaddsPerSecond);
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

double PaperSlope() {
  std::vector<double> sizes, times;
  for (const NetworkRow& row : kRows) {
    if (!row.paper) continue;
    sizes.push_back(row.paper->node_count + row.paper->edge_count);
    times.push_back(row.paper->ms);
  }
  return SlopeOf(sizes, times);
}

// The measured times of one graph.
struct GraphTimes {
  double copy_ms = 0;
  double order_ms = 0;
  double plan_ms = 0;
};

Result<GraphTimes> Measure(const TrainingGraph& training, size_t tensor_count, int repetitions) {
  const auto order = [&] { return sync::OrderTensors(training.graph, {training.step}); };
  LMDBIO_TRY(const std::vector<sync::OrderedTensor> ordered, order());
  if (ordered.size() != tensor_count) {
    return Fail(ErrorCode::kInternal,
                fmt::format("the order has {} tensors; expected {}", ordered.size(), tensor_count));
  }
  return GraphTimes{MedianMs(repetitions, [&] { return sync::Graph(training.graph); }),
                    MedianMs(repetitions, order), MedianMs(repetitions, [&] {
                      return sync::Plan::FromOrder(ordered, {}, 1).digest();
                    })};
}

// The time for each node and edge, in microseconds.
double UsPerPart(double ms, double parts) { return 1e3 * ms / parts; }

std::string PaperText(const std::optional<PaperFigures>& paper) {
  if (!paper) return fmt::format("{:>8}{:>8}{:>6}{:>9}{:>12}", "-", "-", "-", "-", "-");
  return fmt::format("{:>8}{:>8}{:>6.0f}{:>9.1f}{:>12.2f}", paper->node_count, paper->edge_count,
                     paper->ms, UsPerPart(paper->ms, paper->node_count + paper->edge_count),
                     paper->percent);
}

void PrintHead() {
  fmt::print("{:<14}{:>7}{:>7}{:>9}{:>9}{:>10}{:>9}{:>9}{:>12} |{:>8}{:>8}{:>6}{:>9}{:>12}\n",
             "network", "nodes", "edges", "tensors", "copy ms", "order ms", "plan ms", "us/part",
             "training %", "nodes", "edges", "ms", "us/part", "training %");
}

Status Run(int repetitions) {
  PrintHead();
  std::vector<double> sizes, times, copy_times;
  for (const NetworkRow& row : kRows) {
    const std::string path = fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, row.network);
    LMDBIO_TRY(const LayerNetwork network, ReadNetwork(path, /*scale=*/1));
    const TrainingGraph training = MakeTrainingGraph(network);
    const uint64_t nodes = training.graph.node_count(), edges = training.graph.edge_count();
    LMDBIO_TRY(const GraphTimes took, Measure(training, network.tensors.size(), repetitions));
    sizes.push_back(static_cast<double>(nodes + edges));
    times.push_back(took.order_ms);
    copy_times.push_back(took.copy_ms);
    fmt::print("{:<14}{:>7}{:>7}{:>9}{:>9.3f}{:>10.3f}{:>9.3f}{:>9.4f}{:>12.6f} |{}\n", row.network,
               nodes, edges, network.tensors.size(), took.copy_ms, took.order_ms, took.plan_ms,
               UsPerPart(took.order_ms, sizes.back()), 100 * took.order_ms / TrainingMs(network),
               PaperText(row.paper));
  }
  fmt::print(
      "Left of the bar: measured; right of it: table 6.1 of the dissertation. A part is a node or\n"
      "an edge. The order of the tensors grows as (nodes + edges)^{:.2f}, the copy of the graph "
      "as\n"
      "^{:.2f}, the paper's pass as ^{:.2f}.\n"
      "A training is estimated too short: {:.0f} images on {:.0f} ranks, three forward passes for\n"
      "each, {:.3g} multiply-adds per second and rank, nothing else.\n",
      SlopeOf(sizes, times), SlopeOf(sizes, copy_times), PaperSlope(), kTrainingImages,
      kTrainingRanks, kMaddsPerSecond);
  return {};
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  const lmdbio::bench::BenchOptions options = lmdbio::bench::ParseOptions(argc, argv);
  const lmdbio::Status done = lmdbio::bench::Run(options.is_tiny ? 3 : 501);
  if (!done) fmt::print(stderr, "graph_bench: {}\n", done.error().message());
  return done ? 0 : 1;
}
