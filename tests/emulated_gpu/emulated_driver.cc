// The two exported functions of the stand-in: the lookup of all others, and the control.

#include <bit>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

DriverTable WholeTable() {
  DriverTable table;
  AddDeviceFunctions(table);
  AddMemoryFunctions(table);
  AddStreamFunctions(table);
  AddEventFunctions(table);
  AddModuleFunctions(table);
  AddPeerFunctions(table);
  AddTicketFunctions(table);
  AddBatchFunctions(table);
  return table;
}

const EmulatedControl kControl = {
    .Reset =
        [](uint64_t seed) {
          const std::lock_guard lock(machine_mutex);
          ReplaceMachine(seed);
        },
    .FailCall =
        [](const char* name, uint64_t nth, DriverCode fails_with) {
          const std::lock_guard lock(machine_mutex);
          Machine().faults.Add(name, nth, fails_with);
        },
    .FaultsLeft =
        [] {
          const std::lock_guard lock(machine_mutex);
          return Machine().faults.left();
        },
    .HideFunction =
        [](const char* name) {
          const std::lock_guard lock(machine_mutex);
          Machine().faults.Hide(name);
        },
    .SetVersion =
        [](int version) {
          const std::lock_guard lock(machine_mutex);
          Machine().version = version;
        },
    .SetDeviceCount =
        [](int count) {
          const std::lock_guard lock(machine_mutex);
          Machine().device_count = count;
        },
    .SetAttribute =
        [](DeviceAttribute attribute, int value) {
          const std::lock_guard lock(machine_mutex);
          Machine().attributes[attribute] = value;
        },
    .SetReach =
        [](int from, int to, bool reaches) {
          const std::lock_guard lock(machine_mutex);
          Machine().tables.peers().SetReach(from, to, reaches);
        },
    .RefuseImports =
        [](DriverCode refusal) {
          const std::lock_guard lock(machine_mutex);
          Machine().import_refusal = refusal;
        },
    .CallCount =
        [](const char* name) {
          const std::lock_guard lock(machine_mutex);
          return Machine().faults.Count(name);
        },
    .Objects =
        [] {
          const std::lock_guard lock(machine_mutex);
          return Machine().Objects();
        },
    .LazyLoads =
        [] {
          const std::lock_guard lock(machine_mutex);
          return Machine().modules.lazy_loads;
        },
    .QueuedCount = []() -> uint64_t {
      const std::lock_guard lock(machine_mutex);
      return Machine().queues.QueuedCount();
    },
    .BeginCapture =
        [](StreamHandle stream) {
          const std::lock_guard lock(machine_mutex);
          Machine().queues.Capture(std::bit_cast<uint64_t>(stream));
        },
    .AllocateManaged =
        [](size_t size_bytes) {
          const std::lock_guard lock(machine_mutex);
          return Machine().tables.Allocate(0, size_bytes, MemoryOrigin::kManaged);
        },
    .Enqueue =
        [](const char* name, StreamHandle stream, ForeignWork work) {
          return ServeStream(name, stream, [&](EmulatedMachine& machine, uint64_t id) {
            const int ordinal = machine.queues.OrdinalOf(id);
            const auto memory_at = [&machine, ordinal](uint64_t address, size_t size_bytes) {
              std::byte* const memory = machine.tables.ResolveFor(ordinal, address, size_bytes);
              if (memory == nullptr) machine.Lose(ordinal, code::kIllegalAddress);
              return memory;
            };
            machine.queues.Enqueue(
                id, {.may_run = std::move(work.may_run),
                     .run = [run = std::move(work.run), memory_at] { run(memory_at); }});
            return code::kSuccess;
          });
        },
    .CurrentDevice =
        [] {
          const std::lock_guard lock(machine_mutex);
          const EmulatedContext* const context = current_context;
          return context != nullptr && context->retained > 0 ? context->ordinal : -1;
        },
    .Peek =
        [](void* to, uint64_t address, size_t size_bytes) {
          const std::lock_guard lock(machine_mutex);
          const std::byte* const from = Machine().tables.Resolve(address, size_bytes);
          if (from != nullptr) std::memcpy(to, from, size_bytes);
          return from != nullptr;
        },
    .Poke =
        [](uint64_t address, const void* from, size_t size_bytes) {
          const std::lock_guard lock(machine_mutex);
          std::byte* const to = Machine().tables.Resolve(address, size_bytes);
          if (to != nullptr) std::memcpy(to, from, size_bytes);
          return to != nullptr;
        },
};

}  // namespace
}  // namespace lmdbio::test

extern "C" __attribute__((visibility("default"))) const lmdbio::test::EmulatedControl*
lmdbio_emulated_gpu_control() {
  return &lmdbio::test::kControl;
}

// The driver's lookup function, by which all others are found.
extern "C" __attribute__((visibility("default"))) lmdbio::device::DriverCode cuGetProcAddress_v2(
    const char* symbol, void** function, int version, uint64_t, int* status);

lmdbio::device::DriverCode cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                               uint64_t, int* status) {
  using namespace lmdbio::test;
  const std::lock_guard lock(machine_mutex);
  const lmdbio::device::DriverTable table = WholeTable();
  *function = nullptr;
  *status = 1;  // not found
  if (version > Machine().version && std::string_view(symbol) != "cuDriverGetVersion") {
    return lmdbio::device::driver_code::kInvalidValue;
  }
  if (Machine().faults.IsHidden(symbol)) return lmdbio::device::driver_code::kSuccess;
  lmdbio::device::ForEachFunction(table,
                                  [&](const char* name, lmdbio::device::FunctionNeed, auto found) {
                                    if (std::string_view(name) != symbol) return;
                                    *function = reinterpret_cast<void*>(found);
                                    *status = 0;
                                  });
  return lmdbio::device::driver_code::kSuccess;
}
