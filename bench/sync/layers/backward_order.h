// bench/sync/layers/backward_order.h - the order of the layers in a backward pass, by Caramel.
//
// Source: Hashemi et al. 4.1.
#ifndef LMDBIO_BENCH_SYNC_LAYERS_BACKWARD_ORDER_H_
#define LMDBIO_BENCH_SYNC_LAYERS_BACKWARD_ORDER_H_

#include <cstdint>
#include <vector>

#include "bench/sync/layers/layer_network.h"

namespace lmdbio::bench {

// The layers as sync::OrderComputing orders them: a layer is a node, whose cost is its share of the
// pass, and the gradients of its tensors are one gradient. In a network without branches that is
// the reverse of the network.
std::vector<uint32_t> GreedyBackwardOrder(const LayerNetwork& network);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_LAYERS_BACKWARD_ORDER_H_
