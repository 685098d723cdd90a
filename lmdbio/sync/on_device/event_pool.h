// lmdbio/sync/on_device/event_pool.h - events that are used again.
//
// An event stands for one point in a stream as long as somebody holds it. After that it is used for
// another point, so that a job in steady state makes none.
#ifndef LMDBIO_SYNC_ON_DEVICE_EVENT_POOL_H_
#define LMDBIO_SYNC_ON_DEVICE_EVENT_POOL_H_

#include <cstddef>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_event.h"

namespace lmdbio::sync {

// Recorded by its maker before others get it, and not again.
using EventPtr = std::shared_ptr<const device::DeviceEvent>;

// Threads: any, also for the end of an EventPtr
class EventPool {
 public:
  // Makes `count` events.
  // Errors: as Device::MakeEvent
  static Result<std::unique_ptr<EventPool>> Make(std::shared_ptr<device::Device> device,
                                                 size_t count);

  // An event that nobody holds; a new one if there is none.
  // Lifetime: may outlive the pool
  // Errors: as Device::MakeEvent
  Result<std::shared_ptr<device::DeviceEvent>> Take();

 private:
  class EventShelf;
  EventPool(std::shared_ptr<device::Device> device, std::shared_ptr<EventShelf> shelf)
      : device_(std::move(device)), shelf_(std::move(shelf)) {}

  const std::shared_ptr<device::Device> device_;
  const std::shared_ptr<EventShelf> shelf_;  // the events that nobody holds
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_EVENT_POOL_H_
