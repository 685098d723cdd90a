// tests/emulated_gpu/emulated_gpu.h - the control of the stand-in for a GPU's driver, for tests.
//
// The stand-in is a shared library of the name libcuda.so.1. It has the functions of DriverTable,
// and the one exported function below, by which a test sets faults and reads counts. The
// environment decides at its first call:
//
//   LMDBIO_EMULATED_GPU       a file for the memory of all devices, which processes then share.
//                             Without it each process has devices of its own. "%g" in the name
//                             stands for the process group: a program whose jobs are groups gives
//                             each of them new devices.
//   LMDBIO_EMULATED_GPU_SEED  the order in which the work of different streams runs
//   LMDBIO_EMULATED_GPU_FAULTS  faults until the first Reset: NAME:NTH:CODE, separated by commas.
//                             The nth call returns the code, never returns (`hang`), kills the
//                             process (`kill`), or says success and does nothing (`skip`).
//                             NAME:hide hides a function.
//   LMDBIO_EMULATED_GPU_UNREACHED  pairs of devices, as "0-1,2-0": here device 0 does not reach the
//                             memory of device 1, nor device 2 that of device 0. Reset reads it
//                             again. Without it every device reaches every other one.
//
// lmdbio/docs/device.md describes what it emulates.
#ifndef LMDBIO_TESTS_EMULATED_GPU_EMULATED_GPU_H_
#define LMDBIO_TESTS_EMULATED_GPU_EMULATED_GPU_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "lmdbio/device/driver_table.h"

namespace lmdbio::test {

inline constexpr int kEmulatedDevices = 3;     // unless SetDeviceCount says another number
inline constexpr int kEmulatedDevicesMax = 4;  // of SetDeviceCount
inline constexpr uint64_t kEmulatedMemoryBytes = uint64_t{64} << 20;  // of each device

// Machine code for the stand-in. It also takes that of nvcc, and runs its own kernels for it.
inline constexpr char kEmulatedImage[] = "kernels for the emulated GPU";

// Objects that a process has and has not given back.
struct EmulatedObjects {
  uint64_t allocations = 0;
  uint64_t imports = 0;
  uint64_t pinned = 0;
  uint64_t streams = 0;
  uint64_t events = 0;
  uint64_t modules = 0;
  uint64_t contexts = 0;     // retained more often than released
  uint64_t left_behind = 0;  // of the first six, that ended with their context

  uint64_t total() const {
    return allocations + imports + pinned + streams + events + modules + contexts + left_behind;
  }
};

// Work that another library enqueues.
struct ForeignWork {
  // The memory of a device at an address, when the work runs; null, and the end of the context, if
  // the device may not use all of it.
  using MemoryAt = std::function<std::byte*(uint64_t address, size_t size_bytes)>;

  std::function<bool()> may_run;  // asked while the host waits or asks
  std::function<void(const MemoryAt& memory_at)> run;
};

// Names are those of the driver, as "cuMemAlloc". Threads: any
struct EmulatedControl {
  // Forgets all objects, counts, faults and settings, and begins with this seed.
  void (*Reset)(uint64_t seed);
  // The `nth` call from now on, from 1, returns `code` and does nothing. A code that ends a context
  // ends it.
  void (*FailCall)(const char* name, uint64_t nth, device::DriverCode code);
  // Faults that were not met yet.
  uint64_t (*FaultsLeft)();
  // The function is not found until the next Reset. Tables that were loaded before keep it.
  void (*HideFunction)(const char* name);
  void (*SetVersion)(int version);
  void (*SetDeviceCount)(int count);  // at most kEmulatedDevicesMax
  void (*SetAttribute)(device::DeviceAttribute attribute, int value);
  // Whether the first device can be given access to the memory of the second one.
  void (*SetReach)(int from, int to, bool reaches);
  // Calls that open an object of another process fail with this code.
  void (*RefuseImports)(device::DriverCode code);
  // Calls since Reset; all of them for null.
  uint64_t (*CallCount)(const char* name);
  EmulatedObjects (*Objects)();
  // Launches of a kernel whose code was not loaded before.
  uint64_t (*LazyLoads)();
  // Operations that were enqueued and have not run.
  uint64_t (*QueuedCount)();
  // From now on the work of this stream would go into a graph. It runs all the same.
  void (*BeginCapture)(device::StreamHandle stream);
  // Memory that moves between host and device, at an address that was freed last if one is free.
  uint64_t (*AllocateManaged)(size_t size_bytes);
  // Work of another library on a stream of the current context, as a call of this name.
  device::DriverCode (*Enqueue)(const char* name, device::StreamHandle stream, ForeignWork work);
  // That of the context which is current in this thread; -1: none.
  int (*CurrentDevice)();
  // Copies the bytes that the memory of a device holds now. False if there is no such live memory.
  bool (*Peek)(void* to, uint64_t address, size_t size_bytes);
  // The other way: the memory of a device becomes these bytes now.
  bool (*Poke)(uint64_t address, const void* from, size_t size_bytes);
};

}  // namespace lmdbio::test

extern "C" const lmdbio::test::EmulatedControl* lmdbio_emulated_gpu_control();

#endif  // LMDBIO_TESTS_EMULATED_GPU_EMULATED_GPU_H_
