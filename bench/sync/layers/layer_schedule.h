// bench/sync/layers/layer_schedule.h - the layers of a pass that can be computed next.
//
// A layer can be computed when all layers before it are done: those that it needs in a forward
// pass, those that it gives to in a backward pass.
#ifndef LMDBIO_BENCH_SYNC_LAYERS_LAYER_SCHEDULE_H_
#define LMDBIO_BENCH_SYNC_LAYERS_LAYER_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "bench/sync/layers/layer_network.h"

namespace lmdbio::bench {

enum class PassDirection { kForward, kBackward };

// Threads: one at a time.
class LayerSchedule {
 public:
  // network         must outlive this
  // shuffle_seed    as WorkloadOptions
  // backward_order  the same
  LayerSchedule(const LayerNetwork& network, std::optional<uint64_t> shuffle_seed,
                std::span<const uint32_t> backward_order = {});

  // Begins a pass. Requires: the last pass is over
  void Begin(PassDirection direction);
  PassDirection direction() const { return direction_; }

  bool has_computable() const { return !computable_.empty(); }
  // All layers are done.
  bool is_over() const { return left_count_ == 0; }

  // Takes the next layer: the first one of the pass, or any, with a seed.
  // Requires: has_computable
  uint32_t Take();
  // The layer is done. Returns whether another layer became computable, or the pass is over.
  bool Finish(const Layer& layer);

 private:
  uint32_t PlaceOf(uint32_t layer) const {
    return direction_ == PassDirection::kForward ? layer : backward_places_[layer];
  }

  const LayerNetwork& network_;
  bool is_shuffled_;
  std::mt19937_64 chance_;
  PassDirection direction_ = PassDirection::kForward;
  std::vector<uint32_t> missing_;          // [layers] layers before it that are not done
  std::vector<uint32_t> backward_places_;  // [layers] in the order of a backward pass
  std::vector<uint32_t> computable_;       // sorted by their places in the pass
  size_t left_count_ = 0;                  // layers that are not done
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_LAYERS_LAYER_SCHEDULE_H_
