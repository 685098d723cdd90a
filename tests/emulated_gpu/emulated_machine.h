// tests/emulated_gpu/emulated_machine.h - the devices of a process: contexts, memory, streams,
// events.
#ifndef LMDBIO_TESTS_EMULATED_GPU_EMULATED_MACHINE_H_
#define LMDBIO_TESTS_EMULATED_GPU_EMULATED_MACHINE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/call_faults.h"
#include "tests/emulated_gpu/device_file.h"
#include "tests/emulated_gpu/device_tables.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/emulated_kernels.h"
#include "tests/emulated_gpu/work_queues.h"

namespace lmdbio::test {

struct EmulatedContext {
  int ordinal = 0;
  uint64_t retained = 0;
  device::DriverCode lost = device::driver_code::kSuccess;  // each call returns it
};

struct EmulatedEvent {
  int ordinal = 0;
  unsigned flags = 0;
  std::shared_ptr<EventRecords> records;
  std::optional<uint64_t> shared_place;  // in the file
};

struct EmulatedFunction {
  const EmulatedKernel* kernel = nullptr;
  bool is_loaded = false;
};

struct EmulatedModule {
  int ordinal = 0;
  std::map<uint64_t, EmulatedFunction> functions;
};

struct EmulatedModules {
  std::map<uint64_t, EmulatedModule> loaded;
  uint64_t lazy_loads = 0;  // launches that had to load their function
};

// The state of the driver in one process. The functions of emulated_driver.cc hold its mutex.
class EmulatedMachine {
 public:
  explicit EmulatedMachine(DeviceFile& device_file, uint64_t seed)
      : file(device_file), tables(device_file), queues(seed) {
    for (int i = 0; i < kEmulatedDevicesMax; ++i) {
      contexts[static_cast<size_t>(i)].ordinal = i;
      queues.Open(WorkQueues::DefaultOf(i), i);
    }
  }

  // Ends the context of a device: the call of an address that is not live, for example.
  void Lose(int ordinal, device::DriverCode code);
  void Retain(int ordinal);
  // Destroys all objects of the device with the last holder.
  bool Release(int ordinal);
  EmulatedObjects Objects() const;

  uint64_t TakeId() { return next_id_++; }
  uint64_t Tick() { return ++time_; }

  DeviceFile& file;
  DeviceTables tables;
  WorkQueues queues;
  CallFaults faults;
  std::array<EmulatedContext, kEmulatedDevicesMax> contexts;
  std::map<uint64_t, EmulatedEvent> events;
  EmulatedModules modules;
  std::map<device::DeviceAttribute, int> attributes;
  int version = 13000;
  int device_count = kEmulatedDevices;
  bool is_initialized = false;
  device::DriverCode import_refusal = device::driver_code::kSuccess;

 private:
  uint64_t next_id_ = WorkQueues::kFirstId;
  uint64_t time_ = 0;
  uint64_t left_behind_ = 0;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_EMULATED_MACHINE_H_
