// bench/on_device/unknown_memory.h - memory of a GPU as a program allocates it, which lmdbio does
// not know.
#ifndef LMDBIO_BENCH_ON_DEVICE_UNKNOWN_MEMORY_H_
#define LMDBIO_BENCH_ON_DEVICE_UNKNOWN_MEMORY_H_

#include <cstdint>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_address.h"

namespace lmdbio::figures {

class UnknownMemory {
 public:
  // device  outlives the memory
  // Errors: as PrimaryContext::Run
  static Result<UnknownMemory> Allocate(device::Device& device, uint64_t size_bytes) {
    uint64_t address = 0;
    LMDBIO_TRY_VOID(device.context()->Run(
        "cuMemAlloc", [&](const auto& driver) { return driver.MemAlloc(&address, size_bytes); }));
    return UnknownMemory(device, address);
  }
  UnknownMemory(UnknownMemory&& other) noexcept
      : device_(other.device_), address_(std::exchange(other.address_, 0)) {}
  UnknownMemory& operator=(UnknownMemory&&) = delete;
  ~UnknownMemory() {
    if (address_ == 0) return;
    device_->context()->Release(
        "cuMemFree", [address = address_](const auto& driver) { return driver.MemFree(address); });
  }

  device::DeviceAddress begin() const { return {address_}; }

 private:
  UnknownMemory(device::Device& device, uint64_t address) : device_(&device), address_(address) {}

  device::Device* device_;
  uint64_t address_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_UNKNOWN_MEMORY_H_
