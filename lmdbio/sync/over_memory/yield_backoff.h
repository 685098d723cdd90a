// lmdbio/sync/over_memory/yield_backoff.h - when a rank that waits sleeps rather than yield its
// core.
//
// A yield between peers that share a core costs a microsecond, and leaves everybody where it is.
// To sleep and be woken costs several, and moves ranks from core to core, away from what their
// caches hold. But where somebody else computes on the core, a yield may give it away for a slice
// of time, and who sleeps gets it back as soon as it is rung for. So after a yield that takes long
// a rank sleeps in the waits that come next, and in more of them if the next such yield comes soon.
//
// Source: docs/collectives.md "Shared memory".
#ifndef LMDBIO_SYNC_OVER_MEMORY_YIELD_BACKOFF_H_
#define LMDBIO_SYNC_OVER_MEMORY_YIELD_BACKOFF_H_

#include <algorithm>
#include <chrono>

namespace lmdbio::sync {

// Threads: one.
class YieldBackoff {
 public:
  // Peers have seldom more than some tenths of a millisecond to do between their waits; the slices
  // of others take several.
  static constexpr auto kLongYield = std::chrono::milliseconds(1);
  static constexpr int kWaitsMin = 16;    // of a pause
  static constexpr int kWaitsMax = 1024;  // of a pause
  static constexpr int kGrowth = 8;

  // A wait begins. Returns whether it may yield.
  bool MayYield() {
    if (left_ > 0) {
      --left_;
      return false;
    }
    ++waits_since_;
    return true;
  }

  // A yield has taken long. What comes before as many waits as the last pause had is soon.
  void BeginPause() {
    const bool is_soon = waits_since_ <= pause_;
    pause_ = is_soon ? std::min(pause_ * kGrowth, kWaitsMax) : kWaitsMin;
    left_ = pause_;
    waits_since_ = 0;
  }

 private:
  int left_ = 0;         // waits of this pause that are to come
  int pause_ = 0;        // waits of the last pause
  int waits_since_ = 0;  // that might yield, after the last pause
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_YIELD_BACKOFF_H_
