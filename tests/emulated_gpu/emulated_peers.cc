// The functions about access between devices.

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

DriverCode DeviceCanAccessPeer(int* can, DeviceNumber device, DeviceNumber peer) {
  return ServeDevice("cuDeviceCanAccessPeer", device, [&](EmulatedMachine& machine) -> DriverCode {
    if (peer < 0 || peer >= machine.device_count) return code::kInvalidDevice;
    *can = machine.tables.peers().Reaches(device, peer) ? 1 : 0;
    return code::kSuccess;
  });
}

DriverCode CtxEnablePeerAccess(ContextHandle peer, unsigned flags) {
  return ServeContext(
      "cuCtxEnablePeerAccess", [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
        if (flags != 0) return code::kInvalidValue;
        const auto* const context = reinterpret_cast<const EmulatedContext*>(peer);
        if (context == nullptr || context->retained == 0) return code::kInvalidContext;
        if (context->ordinal == ordinal) return code::kInvalidContext;
        PeerAccess& peers = machine.tables.peers();
        if (!peers.Reaches(ordinal, context->ordinal)) return code::kPeerAccessUnsupported;
        return peers.Enable(ordinal, context->ordinal) ? code::kSuccess
                                                       : code::kPeerAccessAlreadyEnabled;
      });
}

}  // namespace

void AddPeerFunctions(device::DriverTable& table) {
  table.DeviceCanAccessPeer = DeviceCanAccessPeer;
  table.CtxEnablePeerAccess = CtxEnablePeerAccess;
}

}  // namespace lmdbio::test
