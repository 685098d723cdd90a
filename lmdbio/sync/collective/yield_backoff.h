// lmdbio/sync/collective/yield_backoff.h - whether a waiting rank yields its core or sleeps.
//
// A yield between peers that share a core takes a microsecond, and no rank changes its core. A
// sleep with its wake-up takes several, and the rank may wake on another core, away from its cached
// data. But if another thread computes on the core, a yield may give the core away for a time slice
// of some milliseconds. A sleeper gets a core as soon as it is woken.
//
// So after a long yield the rank only sleeps in its next 16 waits. If the next long yield follows
// within as many waits as that, the pause grows to 128 waits, then to 1,024.
//
// Source: docs/collectives.md "Waiting".
#ifndef LMDBIO_SYNC_COLLECTIVE_YIELD_BACKOFF_H_
#define LMDBIO_SYNC_COLLECTIVE_YIELD_BACKOFF_H_

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace lmdbio::sync {

// Threads: one.
class YieldBackoff {
 public:
  // Peers seldom work for more than some tenths of a millisecond between two waits. The time slices
  // of other threads take several milliseconds.
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

  // Yields the core up to yield_count times, until look() returns true or a yield took longer than
  // kLongYield. Does nothing in a wait that may not yield.
  template <typename Look>
  void Yield(int yield_count, Look look) {
    if (!MayYield()) return;
    auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < yield_count; ++i) {
      ::sched_yield();
      const auto after = std::chrono::steady_clock::now();
      const bool is_long = after - before > kLongYield;
      if (is_long) BeginPause();
      if (look() || is_long) return;
      before = after;
    }
  }

  // A yield has taken longer than kLongYield. The pause grows if this comes soon, that is, within
  // as many waits as the last pause had.
  void BeginPause() {
    const bool is_soon = waits_since_ <= pause_;
    pause_ = is_soon ? std::min(pause_ * kGrowth, kWaitsMax) : kWaitsMin;
    left_ = pause_;
    waits_since_ = 0;
  }

 private:
  int left_ = 0;         // remaining waits of this pause
  int pause_ = 0;        // waits of the last pause
  int waits_since_ = 0;  // waits that were allowed to yield, since the last pause
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_YIELD_BACKOFF_H_
