// A topological order, found step by step: each layer counts the layers before it that are not
// done, and can be computed when none is left. A pass costs O(layers + edges), and O(layers) more
// for each insertion into the sorted list.
#include "bench/sync/layers/layer_schedule.h"

#include <algorithm>
#include <functional>

namespace lmdbio::bench {

LayerSchedule::LayerSchedule(const LayerNetwork& network, std::optional<uint64_t> shuffle_seed,
                             std::span<const uint32_t> backward_order)
    : network_(network),
      is_shuffled_(shuffle_seed.has_value()),
      backward_places_(network.layers.size()) {
  if (shuffle_seed) chance_.seed(*shuffle_seed);
  const auto count = static_cast<uint32_t>(network.layers.size());
  for (uint32_t place = 0; place < count; ++place) {
    const uint32_t layer = backward_order.empty() ? count - 1 - place : backward_order[place];
    backward_places_[layer] = place;
  }
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
  std::ranges::sort(computable_, {}, std::bind_front(&LayerSchedule::PlaceOf, this));
}

// Without a seed one thread visits the layers in the order of the network, and then in the reverse
// order, or in that of the constructor.
uint32_t LayerSchedule::Take() {
  const size_t position = is_shuffled_ ? chance_() % computable_.size() : 0;
  const uint32_t index = computable_[position];
  computable_.erase(computable_.begin() + static_cast<std::ptrdiff_t>(position));
  return index;
}

// The result is true if a waiting thread has a reason to wake up.
bool LayerSchedule::Finish(const Layer& layer) {
  bool has_more = --left_count_ == 0;
  for (const uint32_t next : direction_ == PassDirection::kForward ? layer.gives : layer.needs) {
    if (--missing_[next] > 0) continue;
    const auto place = std::ranges::lower_bound(computable_, PlaceOf(next), {},
                                                std::bind_front(&LayerSchedule::PlaceOf, this));
    computable_.insert(place, next);
    has_more = true;
  }
  return has_more;
}

}  // namespace lmdbio::bench
