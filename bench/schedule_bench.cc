// Question: how long does the planning of transfers by their times take, for networks with few and
// many tensors and for as many slices as are possible?
//
// State: times in memory, without storage. The baseline is the way of a plan that knows no times:
// whole tensors in the order in which they are ready.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "bench/sync/layers/layer_network.h"
#include "lmdbio/base/status.h"
#include "lmdbio/sync/schedule/predict.h"

namespace lmdbio::bench {
namespace {

constexpr const char* kNetworks[] = {"vgg16", "resnet50", "resnet152", "nasnet_large"};
constexpr int64_t kIterationNs = 300'000'000;
constexpr int64_t kCallNs = 20'000;  // of each call, besides its bytes

// A layer's tensors are ready at the end of its backward pass, and due before its forward pass.
std::vector<sync::TimedTensor> TimesOf(const LayerNetwork& network) {
  std::vector<sync::TimedTensor> tensors;
  double forward = 0;  // share of the layers before this one
  for (const Layer& layer : network.layers) {
    for (const uint32_t tensor : layer.tensors) {
      const double backward = 1 - forward;
      tensors.push_back({});
      tensors.back().ready_ns = static_cast<int64_t>(backward * 2 / 3 * kIterationNs);
      tensors.back().due_ns = static_cast<int64_t>((2 + forward) / 3 * kIterationNs);
      tensors.back().bytes = 4 * network.tensors[tensor].count;
      tensors.back().may_slice = true;
    }
    forward += layer.cost;
  }
  std::reverse(tensors.begin(), tensors.end());
  return tensors;
}

struct Planned {
  std::vector<sync::TransferUnit> units;
  std::vector<sync::TransferStep> steps;
  int64_t length_ns = 0;  // predicted
  int64_t bound_ns = 0;
};

// All that a rank computes when it plans.
Planned Plan(const std::vector<sync::TimedTensor>& tensors, const sync::TransferModel& model,
             const sync::UnitOptions& options) {
  Planned planned;
  planned.units = sync::MakeUnits(tensors, model, options);
  planned.steps = sync::OrderByDue(planned.units, model);
  planned.length_ns =
      sync::PredictIteration(planned.units, planned.steps, kIterationNs, model).length_ns;
  planned.bound_ns = sync::LowerBound(planned.units, kIterationNs, model);
  return planned;
}

double WholeMs(const std::vector<sync::TimedTensor>& tensors, int repetitions) {
  std::vector<std::vector<size_t>> buckets;
  for (size_t i = 0; i < tensors.size(); ++i) buckets.push_back({i});
  return MedianMs(repetitions, [&] {
    return sync::OrderAsGiven(sync::UnitsOfBuckets(tensors, buckets)).size();
  });
}

Status Run(int repetitions) {
  fmt::print("{:<14}{:>8}{:>12}{:>7}{:>8}{:>12}{:>10}{:>13}{:>11}\n", "network", "tensors",
             "slices", "units", "steps", "planning ms", "whole ms", "iteration ms", "bound ms");
  for (const char* name : kNetworks) {
    const std::string path = fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, name);
    LMDBIO_TRY(const LayerNetwork network, ReadNetwork(path, /*scale=*/1));
    const std::vector<sync::TimedTensor> tensors = TimesOf(network);
    // All bytes take as long as computing.
    LMDBIO_TRY(const sync::TransferModel model,
               sync::TransferModel::FromPoints(
                   {{1, kCallNs}, {network.gradient_bytes(), kCallNs + kIterationNs}}));
    for (const bool is_fine : {false, true}) {
      sync::UnitOptions options;
      options.length_ns = kIterationNs;
      if (is_fine) options.slice_bytes = options.threshold_bytes = 1;
      const Planned planned = Plan(tensors, model, options);
      const double plan_ms =
          MedianMs(repetitions, [&] { return Plan(tensors, model, options).steps.size(); });
      fmt::print("{:<14}{:>8}{:>12}{:>7}{:>8}{:>12.3f}{:>10.3f}{:>13.1f}{:>11.1f}\n", name,
                 tensors.size(), is_fine ? "512 each" : "by model", planned.units.size(),
                 planned.steps.size(), plan_ms, WholeMs(tensors, repetitions),
                 static_cast<double>(planned.length_ns) / 1e6,
                 static_cast<double>(planned.bound_ns) / 1e6);
    }
  }
  fmt::print(
      "An iteration computes for {} ms, and all bytes take as long. With \"512 each\" nothing is\n"
      "batched, and each tensor has as many slices as it may have.\n",
      kIterationNs / 1'000'000);
  return {};
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  const lmdbio::bench::BenchOptions options = lmdbio::bench::ParseOptions(argc, argv);
  const lmdbio::Status done = lmdbio::bench::Run(options.is_tiny ? 1 : 101);
  if (!done) fmt::print(stderr, "schedule_bench: {}\n", done.error().message());
  return done ? 0 : 1;
}
