#include "bench/sync/layers/layer_network.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmdbio::bench {
namespace {

using nlohmann::json;

// Throws json::exception or std::out_of_range. Layers stand in forward order. So an unknown or
// later layer among the needs of a layer is not in `place_of`, and the file is refused: no network
// has a cycle.
LayerNetwork Parse(const json& text, double scale) {
  LayerNetwork network;
  network.name = text.at("name").get<std::string>();
  network.madds = text.at("madds").get<double>();
  std::map<std::string, uint32_t> place_of;
  for (const json& from : text.at("layers")) {
    const auto place = static_cast<uint32_t>(network.layers.size());
    Layer& layer = network.layers.emplace_back();
    layer.name = from.at("name").get<std::string>();
    layer.cost = from.at("madds").get<double>() / network.madds;
    for (const json& need : from.at("needs")) {
      layer.needs.push_back(place_of.at(need.get<std::string>()));
      network.layers[layer.needs.back()].gives.push_back(place);
    }
    for (const json& tensor : from.at("tensors")) {
      double count = 1;
      for (const json& extent : tensor.at(1)) count *= extent.get<double>();
      layer.tensors.push_back(static_cast<uint32_t>(network.tensors.size()));
      // A tensor keeps one element at any scale, so the number of tensors stays.
      network.tensors.push_back({tensor.at(0).get<std::string>(),
                                 static_cast<uint64_t>(std::max(1.0, std::round(count * scale)))});
    }
    place_of[layer.name] = place;
  }
  return network;
}

}  // namespace

uint64_t LayerNetwork::gradient_bytes() const {
  uint64_t bytes = 0;
  for (const GradientTensor& tensor : tensors) bytes += tensor.count * sizeof(float);
  return bytes;
}

Result<LayerNetwork> ReadNetwork(const std::string& path, double scale) {
  std::ifstream file(path);
  if (!file) return Fail(ErrorCode::kNotFound, fmt::format("{}: the network cannot be read", path));
  try {
    return Parse(json::parse(file), scale);
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kCorruption, fmt::format("{}: {}", path, failure.what()));
  }
}

}  // namespace lmdbio::bench
