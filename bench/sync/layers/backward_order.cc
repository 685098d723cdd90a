#include "bench/sync/layers/backward_order.h"

#include <cmath>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/schedule/compute_order.h"

namespace lmdbio::bench {
namespace {

constexpr double kPassNs = 1e12;  // of the whole pass; only shares count

}  // namespace

std::vector<uint32_t> GreedyBackwardOrder(const LayerNetwork& network) {
  std::vector<sync::ComputeNode> nodes;
  std::vector<uint32_t> gradients;
  for (const Layer& layer : network.layers) {
    if (!layer.tensors.empty()) gradients.push_back(static_cast<uint32_t>(nodes.size()));
    // In a backward pass a layer needs those that have taken its result.
    nodes.push_back({std::llround(layer.cost * kPassNs), layer.gives});
  }
  Result<sync::ComputeOrder> order = sync::OrderComputing(nodes, gradients);
  LMDBIO_CHECK(order.has_value());  // ReadNetwork permits no cycle
  return std::move(order->nodes);
}

}  // namespace lmdbio::bench
