// lmdbio/sync/on_device/device_waits.h - the waits of the helper thread for the work of its GPU.
#ifndef LMDBIO_SYNC_ON_DEVICE_DEVICE_WAITS_H_
#define LMDBIO_SYNC_ON_DEVICE_DEVICE_WAITS_H_

#include <atomic>
#include <functional>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {

// A wait ends when the work is done, when a rank fails, or after Stop.
// Threads: one at a time, except Stop
class DeviceWaits {
 public:
  // health  outlives this
  explicit DeviceWaits(ranks::Health& health) : health_(health) {}

  // Ends each wait within ranks::kHealthNap, now and later. Threads: any
  void Stop() { is_stopped_.store(true); }

  // Whether a wait may go on.
  // Errors: kPeerFailed  this rank has called Stop; and those of the health
  Status Check() const;
  // Waits for the work before the last record of the event.
  // Errors: as Check; kInternal  the driver fails, by its own name for the reason
  Status AwaitDone(const device::DeviceEvent& event) const;
  // Waits until `is_idle` returns true.
  // Errors: as Check, and those of `is_idle`
  Status AwaitIdle(const std::function<Result<bool>()>& is_idle) const;

 private:
  ranks::Health& health_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_DEVICE_WAITS_H_
