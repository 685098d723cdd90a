// Devices, streams and events, as PyTorch uses them also in the threads of backward passes.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <bit>

#include "tests/emulated_torch/emulated_backend.h"

namespace lmdbio::test {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

Stream StreamOf(Device device, c10::StreamId id) { return Stream(Stream::UNSAFE, device, id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kBackend; }
  DeviceIndex deviceCount() const noexcept override { return DeviceCount(); }

  Device getDevice() const override { return {kBackend, CurrentDevice()}; }
  void setDevice(Device device) const override { SetDevice(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override { SetDevice(device.index()); }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    SetDevice(device.index());
    return before;
  }

  Stream getStream(Device device) const override {
    return StreamOf(device, CurrentStream(device.index()));
  }
  Stream getDefaultStream(Device device) const override { return StreamOf(device, 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return StreamOf(device, NewStream(device.index()));
  }
  Stream exchangeStream(Stream stream) const override {
    return StreamOf(stream.device(), ExchangeStream(stream.device_index(), stream.id()));
  }
  bool queryStream(const Stream& stream) const override {
    SetDevice(stream.device_index());
    return Driver().StreamQuery(HandleOf(stream.id())) == device::driver_code::kSuccess;
  }
  void synchronizeStream(const Stream& stream) const override {
    SetDevice(stream.device_index());
    Check(Driver().StreamSynchronize(HandleOf(stream.id())), "cuStreamSynchronize");
  }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    SetDevice(stream.device_index());
    device::EventHandle made = std::bit_cast<device::EventHandle>(*event);
    if (made == nullptr) {
      Check(Driver().EventCreate(&made, device::kEventDisableTiming), "cuEventCreate");
      *event = std::bit_cast<void*>(made);
    }
    Check(Driver().EventRecord(made, HandleOf(stream.id())), "cuEventRecord");
  }
  void block(void* event, const Stream& stream) const override {
    SetDevice(stream.device_index());
    if (event == nullptr) return;
    Check(Driver().StreamWaitEvent(HandleOf(stream.id()), std::bit_cast<device::EventHandle>(event),
                                   0),
          "cuStreamWaitEvent");
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    RecordUse(memory.get_context(), stream.id());
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Driver().EventQuery(std::bit_cast<device::EventHandle>(event)) ==
                                   device::driver_code::kSuccess;
  }
  void destroyEvent(void* event, DeviceIndex device) const noexcept override {
    if (event == nullptr) return;
    SetDevice(device);
    Driver().EventDestroy(std::bit_cast<device::EventHandle>(event));
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DeviceCount(); }
  void setCurrentDevice(DeviceIndex device) const override { SetDevice(device); }
  DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = CurrentDevice();
    if (device >= 0) SetDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
};

const int kRegistered = [] {
  c10::SetAllocator(kBackend, &DeviceAllocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return 0;
}();

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace lmdbio::test
