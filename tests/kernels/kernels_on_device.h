// tests/kernels/kernels_on_device.h - kernels on a device of the stand-in (tests/emulated_gpu).
#ifndef LMDBIO_TESTS_KERNELS_KERNELS_ON_DEVICE_H_
#define LMDBIO_TESTS_KERNELS_KERNELS_ON_DEVICE_H_

#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "lmdbio/kernels/device_kernels.h"
#include "tests/device/emulated_device.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/support/good.h"

namespace lmdbio::test {

// Machine code for the stand-in, so that these tests need no nvcc.
inline kernels::KernelImage EmulatedKernelImage() {
  return {.bytes = std::as_bytes(std::span(kEmulatedImage)),
          .compiler = "nvcc 0.0",
          .machines = "sm_00"};
}

// Its members have the names of namespaces, so the types have their whole names.
struct KernelsOnDevice {
  explicit KernelsOnDevice(uint64_t seed) : gpu(seed) {}

  // Device memory of this content, or of a byte if there is none.
  ::lmdbio::device::DeviceMemory Make(const std::string& content) {
    ::lmdbio::device::DeviceMemory memory = Good(device->Allocate(content.size() + 1));
    if (content.empty()) return memory;
    const SharedBytes host(content.size());
    const ::lmdbio::device::PinnedBytes pinned = Good(device->Pin(host.bytes()));
    Write(pinned, content);
    Must(stream.CopyIn(memory.begin(), pinned, 0, content.size()));
    Must(stream.Synchronize());
    return memory;
  }

  ::lmdbio::device::DeviceEvent& MakeEvent() {
    return events.emplace_back(Good(device->MakeEvent(::lmdbio::device::DeviceEventKind::kLocal)));
  }

  EmulatedGpu gpu;
  std::shared_ptr<::lmdbio::device::Device> device = gpu.Open();
  std::unique_ptr<::lmdbio::kernels::DeviceKernels> kernels =
      Good(::lmdbio::kernels::DeviceKernels::Load(*device, EmulatedKernelImage()));
  ::lmdbio::device::DeviceStream stream = Good(device->MakeStream());
  std::deque<::lmdbio::device::DeviceEvent> events;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_KERNELS_KERNELS_ON_DEVICE_H_
