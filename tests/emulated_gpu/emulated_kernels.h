// tests/emulated_gpu/emulated_kernels.h - the kernels of lmdbio/kernels, compiled for the host.
#ifndef LMDBIO_TESTS_EMULATED_GPU_EMULATED_KERNELS_H_
#define LMDBIO_TESTS_EMULATED_GPU_EMULATED_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/emulated_gpu/device_tables.h"

namespace lmdbio::test {

// One launch, when it runs.
struct EmulatedLaunch {
  int ordinal = 0;  // of the device
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint64_t seed = 0;  // of the order of its blocks and threads
};

struct EmulatedKernel {
  const char* name;
  size_t parameter_bytes;
  // Runs all threads of a launch. False if the device may not use an address of the parameter: then
  // no thread has run.
  bool (*run)(const DeviceTables& memory, const std::byte* parameter, const EmulatedLaunch& launch);
};

// Null if there is no kernel of this name.
const EmulatedKernel* FindEmulatedKernel(std::string_view name);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_EMULATED_KERNELS_H_
