// lmdbio/sync/rounds/round_clock.h - the clock by which rounds are paced. A test, or a figure of a
// paper, runs the same pacing on a clock of its own.
#ifndef LMDBIO_SYNC_ROUNDS_ROUND_CLOCK_H_
#define LMDBIO_SYNC_ROUNDS_ROUND_CLOCK_H_

#include <chrono>

namespace lmdbio::sync {

// Threads: one at a time.
class RoundClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~RoundClock() = default;
  virtual TimePoint Now() = 0;
  // Sleeps for this long, or longer if the thread gets no core (oversleep).
  virtual void SleepFor(std::chrono::microseconds duration) = 0;
};

// The steady clock and the sleep of the calling thread. Threads: any.
RoundClock& SteadyRoundClock();

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ROUNDS_ROUND_CLOCK_H_
