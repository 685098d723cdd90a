// bench/sync/layers/layer_network.h - the layers of a network, their gradients and dependencies.
#ifndef LMDBIO_BENCH_SYNC_LAYERS_LAYER_NETWORK_H_
#define LMDBIO_BENCH_SYNC_LAYERS_LAYER_NETWORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::bench {

struct GradientTensor {
  std::string name;
  uint64_t count = 0;  // elements, scaled; at least 1
};

struct Layer {
  std::string name;
  std::vector<uint32_t> needs;    // layers of which it takes the result
  std::vector<uint32_t> gives;    // layers that take its result
  std::vector<uint32_t> tensors;  // its gradients
  double cost = 0;                // its share of one pass; all layers together: 1
};

struct LayerNetwork {
  std::string name;
  std::vector<Layer> layers;            // in forward order
  std::vector<GradientTensor> tensors;  // in forward order
  double madds = 0;                     // multiply-adds of a forward pass for one image; not scaled

  uint64_t gradient_bytes() const;
};

// Reads NAME.json as bench/sync/make_networks.py writes it.
// scale  [> 0] of the number of elements of each tensor
// Errors: kNotFound  no such file; kCorruption  not such a network
Result<LayerNetwork> ReadNetwork(const std::string& path, double scale);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_LAYERS_LAYER_NETWORK_H_
