// tests/device/emulated_device.h - devices of the stand-in (tests/emulated_gpu) for one test.
#ifndef LMDBIO_TESTS_DEVICE_EMULATED_DEVICE_H_
#define LMDBIO_TESTS_DEVICE_EMULATED_DEVICE_H_

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/support/good.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

// The driver by its usual name, which the environment of these tests leads to the stand-in.
inline constexpr const char* kDriver = "libcuda.so.1";

// Throws std::runtime_error if the driver is not the stand-in.
inline const EmulatedControl& Control() {
  using Get = decltype(&lmdbio_emulated_gpu_control);
  void* const library = ::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto get = reinterpret_cast<Get>(::dlsym(library, "lmdbio_emulated_gpu_control"));
  if (get == nullptr) throw std::runtime_error("libcuda.so.1 is not the stand-in");
  return *get();
}

// A stand-in in its first state. It outlives the devices that it opens.
class EmulatedGpu {
 public:
  explicit EmulatedGpu(uint64_t seed = 1) {
    control_.Reset(seed);
    table_ = Good(device::LoadDriver(kDriver));
  }
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  std::shared_ptr<device::Device> Open(
      int ordinal = 0, device::CacheCheck check = device::CacheCheck::kBufferId) const {
    return Good(device::Device::Open(ordinal, table_, check));
  }
  const device::DriverTable& table() const { return table_; }
  const EmulatedControl* operator->() const { return &control_; }

  // The bytes that the memory of a device holds now.
  std::string Peek(device::DeviceAddress address, size_t size_bytes) const {
    std::string bytes(size_bytes, '\0');
    if (!control_.Peek(bytes.data(), address.value, size_bytes)) {
      throw std::runtime_error("no live device memory there");
    }
    return bytes;
  }

 private:
  const EmulatedControl& control_ = Control();
  device::DriverTable table_;
};

// The number of seeds that a test tries.
inline uint64_t SeedCount(uint64_t usual) {
  const char* const text = std::getenv("LMDBIO_TEST_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

// Waits for the same value of all marks.
inline std::vector<device::MarkWait> WaitsFor(const std::vector<device::DeviceMark>& marks,
                                              uint64_t value) {
  std::vector<device::MarkWait> waits;
  for (const device::DeviceMark& mark : marks) waits.push_back({mark, value});
  return waits;
}

inline void Write(const device::PinnedBytes& memory, const std::string& text) {
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(memory.bytes().data()));
}

inline std::string Read(const device::PinnedBytes& memory, size_t size_bytes) {
  return {reinterpret_cast<const char*>(memory.bytes().data()), size_bytes};
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_DEVICE_EMULATED_DEVICE_H_
