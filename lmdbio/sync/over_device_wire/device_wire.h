// lmdbio/sync/over_device_wire/device_wire.h - ranks of different hosts reduce values on their GPUs
// by messages.
//
// The algorithms and their messages are those of sync/over_wire. Kernels of the GPU reduce what
// arrives, so values do not pass through memory of the host but for their messages.
//
// Source: Awan et al. V-A; docs/device_wires.md.
#ifndef LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_H_
#define LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_device_wire/device_wire_values.h"
#include "lmdbio/sync/over_device_wire/wire_slots.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::sync {

// The device and the kernels outlive the object.
struct DeviceWireSetup {
  device::Device& gpu;
  const kernels::DeviceKernels& kernels;
  std::function<Status()> check;  // called in waits for the GPU; an error ends them
  int known_as = 0;               // the number of this rank in failures that the others get
};

struct DeviceWireOptions {
  WireTable table = UsualWireTable();  // that of rank 0 applies
  // [whole pages, >= kDoublingBytesMax; the same on every rank] Chunks are made small enough that
  // all messages under way fit.
  uint64_t pinned_bytes = uint64_t{16} << 20;
};

class DeviceWire final : public BetweenHosts {
 public:
  // Collective over `group`.
  // wire  [2 ranks or more] of the ranks of the group
  // Errors, on every rank if on one:
  //   kInvalidArgument    the table, see CheckWireTable
  //   kUnsupported        direct algorithm for more ranks than a kernel takes sources
  //   kResourceExhausted  no memory to pin on this rank; kPeerFailed on the others
  //   and as Wire, WireSlots::Make
  static Result<std::unique_ptr<DeviceWire>> Make(ranks::Group& group, std::unique_ptr<Wire> wire,
                                                  DeviceWireSetup setup,
                                                  const DeviceWireOptions& options);
  // Requires: all work of streams that a call has enqueued is done
  ~DeviceWire() override;
  DeviceWire(const DeviceWire&) = delete;
  DeviceWire& operator=(const DeviceWire&) = delete;

  Status AllReduce(const DeviceArray& values, const Reduction& reduction,
                   device::DeviceStream& stream) override;
  void Stop(const Error& why) override { wire_->Stop(why); }
  std::string Description() const override;

 private:
  DeviceWire(std::unique_ptr<Wire> wire, DeviceWireSetup setup, std::unique_ptr<WireSlots> slots);

  Status Reduce(const DeviceArray& values, const Reduction& reduction,
                device::DeviceStream& stream);
  // The values travel with an agreement of the ranks, and the host reduces them.
  Status ReduceByDoubling(const DeviceArray& values, const Reduction& reduction,
                          device::DeviceStream& stream);
  DeviceWireValues::WireLanes LanesFor(const WireChoice& choice) const;

  const std::unique_ptr<Wire> wire_;
  const DeviceWireSetup setup_;
  std::unique_ptr<WireSlots> slots_;
  std::unique_ptr<WireAgreement> agreement_;
  WireTable table_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_WIRE_DEVICE_WIRE_H_
