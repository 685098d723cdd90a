#include "lmdbio/sync/on_device/event_pool.h"

#include <mutex>
#include <utility>
#include <vector>

#include "lmdbio/device/device_error.h"

namespace lmdbio::sync {

using device::DeviceEvent;

class EventPool::EventShelf {
 public:
  explicit EventShelf(std::shared_ptr<device::PrimaryContext> context)
      : context_(std::move(context)) {}

  // In a child of fork(), a thread of the parent may have held the mutex.
  bool is_forked() const { return context_->is_forked(); }

  void Put(std::unique_ptr<DeviceEvent> event) {
    if (is_forked()) return;
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }

  std::unique_ptr<DeviceEvent> Get() {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return nullptr;
    std::unique_ptr<DeviceEvent> event = std::move(events_.back());
    events_.pop_back();
    return event;
  }

 private:
  const std::shared_ptr<device::PrimaryContext> context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceEvent>> events_;
};

Result<std::unique_ptr<EventPool>> EventPool::Make(std::shared_ptr<device::Device> device,
                                                   size_t count) {
  auto shelf = std::make_shared<EventShelf>(device->context());
  for (size_t i = 0; i < count; ++i) {
    LMDBIO_TRY(DeviceEvent event, device->MakeEvent(device::DeviceEventKind::kLocal));
    shelf->Put(std::make_unique<DeviceEvent>(std::move(event)));
  }
  return std::unique_ptr<EventPool>(new EventPool(std::move(device), std::move(shelf)));
}

Result<std::shared_ptr<DeviceEvent>> EventPool::Take() {
  if (shelf_->is_forked()) return Fail(device::ForkedError());
  std::unique_ptr<DeviceEvent> event = shelf_->Get();
  if (event == nullptr) {
    LMDBIO_TRY(DeviceEvent made, device_->MakeEvent(device::DeviceEventKind::kLocal));
    event = std::make_unique<DeviceEvent>(std::move(made));
  }
  // The shelf lives as long as an event is held, so the last event frees it.
  return std::shared_ptr<DeviceEvent>(event.release(), [shelf = shelf_](DeviceEvent* held) {
    shelf->Put(std::unique_ptr<DeviceEvent>(held));
  });
}

}  // namespace lmdbio::sync
