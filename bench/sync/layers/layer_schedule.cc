// A topological order, found step by step: each layer counts the layers before it that are not
// done, and can be computed when none is left. A pass costs O(layers + edges), and O(layers) more
// for each insertion into the sorted list.
#include "bench/sync/layers/layer_schedule.h"

#include <algorithm>

namespace lmdbio::bench {

LayerSchedule::LayerSchedule(const LayerNetwork& network, std::optional<uint64_t> shuffle_seed)
    : network_(network), is_shuffled_(shuffle_seed.has_value()) {
  if (shuffle_seed) chance_.seed(*shuffle_seed);
}

void LayerSchedule::Begin(PassDirection direction) {
  direction_ = direction;
  left_count_ = network_.layers.size();
  missing_.clear();
  computable_.clear();
  for (uint32_t i = 0; i < network_.layers.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const auto& before = direction == PassDirection::kForward ? layer.needs : layer.gives;
    missing_.push_back(static_cast<uint32_t>(before.size()));
    if (before.empty()) computable_.push_back(i);
  }
}

// Forward from the front, backward from the back: without a seed one thread visits the layers in
// the order of the network, and in the reverse order.
uint32_t LayerSchedule::Take() {
  size_t position = direction_ == PassDirection::kForward ? 0 : computable_.size() - 1;
  if (is_shuffled_) position = chance_() % computable_.size();
  const uint32_t index = computable_[position];
  computable_.erase(computable_.begin() + static_cast<std::ptrdiff_t>(position));
  return index;
}

// The result is true if a waiting thread has a reason to wake up.
bool LayerSchedule::Finish(const Layer& layer) {
  bool has_more = --left_count_ == 0;
  for (const uint32_t next : direction_ == PassDirection::kForward ? layer.gives : layer.needs) {
    if (--missing_[next] > 0) continue;
    computable_.insert(std::lower_bound(computable_.begin(), computable_.end(), next), next);
    has_more = true;
  }
  return has_more;
}

}  // namespace lmdbio::bench
