#include "lmdbio/sync/rounds/round_clock.h"

#include <thread>

namespace lmdbio::sync {
namespace {

class SteadyClock final : public RoundClock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
  void SleepFor(std::chrono::microseconds duration) override {
    std::this_thread::sleep_for(duration);
  }
};

}  // namespace

RoundClock& SteadyRoundClock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace lmdbio::sync
