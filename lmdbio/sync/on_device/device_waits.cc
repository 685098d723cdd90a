#include "lmdbio/sync/on_device/device_waits.h"

#include <chrono>

#include "lmdbio/sync/over_device/event_wait.h"

namespace lmdbio::sync {

using Clock = std::chrono::steady_clock;

Status DeviceWaits::Check() const {
  if (is_stopped_.load()) {
    return Fail(ErrorCode::kPeerFailed, "this rank has closed its synchronizer");
  }
  return health_.Check();
}

Status DeviceWaits::AwaitDone(const device::DeviceEvent& event) const {
  LMDBIO_TRY_VOID(AwaitEvent(event, Clock::time_point::max(), [this] { return Check(); }));
  return {};
}

Status DeviceWaits::AwaitIdle(const std::function<Result<bool>()>& is_idle) const {
  LMDBIO_TRY_VOID(LookUntil(is_idle, Clock::time_point::max(), [this] { return Check(); }));
  return {};
}

}  // namespace lmdbio::sync
