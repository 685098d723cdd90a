// lmdbio/sync/over_device/event_wait.h - how a thread of the host waits for an event.
//
// A call of the driver that waits would hold locks of the driver, and could not end when a rank
// fails. So the thread looks at the event, with LookPauses in between.
#ifndef LMDBIO_SYNC_OVER_DEVICE_EVENT_WAIT_H_
#define LMDBIO_SYNC_OVER_DEVICE_EVENT_WAIT_H_

#include <chrono>
#include <functional>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_event.h"

namespace lmdbio::sync {

// Looks until `is_done` returns true or an error.
// until  the time after which it gives up; the first look is made in any case
// check  called about every ranks::kHealthNap; an error ends the wait. Empty: none
// Returns: whether it is done
// Errors: those of `is_done` and `check`
Result<bool> LookUntil(const std::function<Result<bool>()>& is_done,
                       std::chrono::steady_clock::time_point until,
                       const std::function<Status()>& check);

// Waits for the work before the last record of the event.
// Returns, Errors: as LookUntil
Result<bool> AwaitEvent(const device::DeviceEvent& event,
                        std::chrono::steady_clock::time_point until,
                        const std::function<Status()>& check = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_EVENT_WAIT_H_
