#include "lmdbio/sync/over_device/event_wait.h"

#include "lmdbio/base/thread_times.h"
#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {

using Clock = std::chrono::steady_clock;

Result<bool> LookUntil(const std::function<Result<bool>()>& is_done,
                       std::chrono::steady_clock::time_point until,
                       const std::function<Status()>& check) {
  Clock::time_point checked = Clock::now();
  LookPauses pauses;
  while (true) {
    LMDBIO_TRY(const bool is_over, is_done());
    if (is_over) return true;
    const Clock::time_point now = Clock::now();
    if (now >= until) return false;
    if (check && now - checked >= ranks::kHealthNap) {
      checked = now;
      LMDBIO_TRY_VOID(check());
    }
    pauses.Pause();
  }
}

Result<bool> AwaitEvent(const device::DeviceEvent& event,
                        std::chrono::steady_clock::time_point until,
                        const std::function<Status()>& check) {
  return LookUntil([&event] { return event.IsDone(); }, until, check);
}

}  // namespace lmdbio::sync
