// bench/device_jobs/host_reduced_wire.h - ranks reduce values on their GPUs by messages, and the
// processor of the host adds: the way that kernels of the GPU are compared with.
//
// Each value crosses PCIe once in each direction. Copies out, messages, sums and copies in overlap,
// so this differs from sync::DeviceWire in the place of the sum alone.
//
// Source: Awan et al. V-A.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_HOST_REDUCED_WIRE_H_
#define LMDBIO_BENCH_DEVICE_JOBS_HOST_REDUCED_WIRE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/on_device/roofs.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::figures {

class HostReducedWire final : public sync::BetweenHosts {
 public:
  // choice          kRing or kHalving
  // size_bytes_max  [> 0] of values
  // Errors: as PinnedSpace::Make, Device::MakeStream, Device::MakeEvent
  static Result<std::unique_ptr<HostReducedWire>> Make(device::Device& gpu,
                                                       std::unique_ptr<sync::Wire> wire,
                                                       const sync::WireChoice& choice,
                                                       uint64_t size_bytes_max);

  // Requires: no more than size_bytes_max
  Status AllReduce(const sync::DeviceArray& values, const sync::Reduction& reduction,
                   device::DeviceStream& stream) override;
  void Stop(const Error& why) override { wire_->Stop(why); }
  std::string Description() const override;

 private:
  HostReducedWire(std::unique_ptr<sync::Wire> wire, const sync::WireChoice& choice,
                  PinnedSpace space, device::DeviceStream out, device::DeviceEvent begin)
      : wire_(std::move(wire)),
        choice_(choice),
        space_(std::move(space)),
        out_(std::move(out)),
        begin_(std::move(begin)) {}

  const std::unique_ptr<sync::Wire> wire_;
  const sync::WireChoice choice_;
  sync::WireScratch scratch_;
  PinnedSpace space_;
  device::DeviceStream out_;
  device::DeviceEvent begin_;
  std::vector<device::DeviceEvent> events_;  // of the pieces that are copied out
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_HOST_REDUCED_WIRE_H_
