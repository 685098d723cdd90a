// A thread of the host looks until the work before a point is done. So other ranks need no wait on
// a stream after they have met this rank.
#include <chrono>
#include <utility>

#include "lmdbio/device/device_event.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device/stream_orders.h"

namespace lmdbio::sync {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceStream;

class HostOrder final : public StreamOrder {
 public:
  HostOrder(DeviceEvent event, std::function<Status()> check)
      : event_(std::move(event)), check_(std::move(check)) {}

  OrderKind kind() const override { return OrderKind::kHost; }

  Status Announce(OrderPoint, DeviceStream& stream) override {
    LMDBIO_TRY_VOID(stream.Record(event_));
    LMDBIO_TRY_VOID(AwaitEvent(event_, std::chrono::steady_clock::time_point::max(), check_));
    return {};
  }

  Status Await(OrderPoint, std::span<const int>, DeviceStream&) override { return {}; }
  void Poison() override {}
  bool is_void() const override { return false; }  // no stream goes on without others
  void CloseOthers() override {}

 private:
  DeviceEvent event_;
  const std::function<Status()> check_;
};

}  // namespace

Result<std::unique_ptr<StreamOrder>> MakeHostOrder(ranks::Group& group, device::Device& gpu,
                                                   std::function<Status()> check) {
  LMDBIO_TRY(DeviceEvent event, ranks::ForAll(group, gpu.MakeEvent(DeviceEventKind::kLocal)));
  return std::make_unique<HostOrder>(std::move(event), std::move(check));
}

}  // namespace lmdbio::sync
