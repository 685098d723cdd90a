// tests/emulated_gpu/emulated_calls.h - the parts that all functions of the stand-in share: the
// lock, the counts and faults, and the checks of device, context and stream.
#ifndef LMDBIO_TESTS_EMULATED_GPU_EMULATED_CALLS_H_
#define LMDBIO_TESTS_EMULATED_GPU_EMULATED_CALLS_H_

#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "lmdbio/device/device_error.h"
#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_machine.h"

namespace lmdbio::test {

namespace code = device::driver_code;
using device::DriverCode;

inline constexpr DriverCode kTimedOut = 909;  // the driver's code for it; it ends no context
inline constexpr auto kWaitMax = std::chrono::seconds(60);     // without progress
inline constexpr auto kPause = std::chrono::microseconds(50);  // between looks at other processes

extern std::mutex machine_mutex;
extern thread_local EmulatedContext* current_context;

DeviceFile& TheFile();
// The machine; machine_mutex is held.
EmulatedMachine& Machine();
// Makes a new machine, without objects.
void ReplaceMachine(uint64_t seed);
// A real driver does not survive fork() either, but not so clearly.
void DieIfForked();

// Faults of LMDBIO_EMULATED_GPU_FAULTS that no code of a driver is: the call never returns, the
// process is killed in it, or it says success and does nothing.
inline constexpr DriverCode kHangs = -1;
inline constexpr DriverCode kKills = -2;
inline constexpr DriverCode kSkips = -3;
inline bool IsEnding(DriverCode fault) { return fault == kHangs || fault == kKills; }
[[noreturn]] void EndCall(DriverCode fault);
// Adds the faults of that variable to a machine.
void AddFaultsOfEnvironment(EmulatedMachine& machine);

// `body` gets the machine.
template <typename Body>
DriverCode Serve(const char* name, Body&& body) {
  DieIfForked();
  const std::lock_guard lock(machine_mutex);
  EmulatedMachine& machine = Machine();
  const DriverCode fault = machine.faults.Meet(name);
  if (IsEnding(fault)) EndCall(fault);
  if (fault == kSkips) return code::kSuccess;
  if (fault != code::kSuccess) {
    if (device::EndsContext(fault) && current_context != nullptr) {
      machine.Lose(current_context->ordinal, fault);
    }
    return fault;
  }
  return body(machine);
}

// Calls about devices: they need no context.
template <typename Body>
DriverCode ServeDevice(const char* name, device::DeviceNumber number, Body&& body) {
  return Serve(name, [&](EmulatedMachine& machine) -> DriverCode {
    if (!machine.is_initialized) return code::kNotInitialized;
    if (number < 0 || number >= machine.device_count) return code::kInvalidDevice;
    return body(machine);
  });
}

// Calls that need a current context which is not lost. `body` gets its device's number, too. A
// failure of work that ran meanwhile is reported by the call.
template <typename Body>
DriverCode ServeContext(const char* name, Body&& body) {
  return Serve(name, [&](EmulatedMachine& machine) -> DriverCode {
    if (!machine.is_initialized) return code::kNotInitialized;
    EmulatedContext* const context = current_context;
    if (context == nullptr || context->retained == 0) return code::kInvalidContext;
    if (context->lost != code::kSuccess) return context->lost;
    const DriverCode result = body(machine, context->ordinal);
    return context->lost != code::kSuccess ? context->lost : result;
  });
}

// Calls about a stream of the current context. `body` gets the number of the stream.
template <typename Body>
DriverCode ServeStream(const char* name, device::StreamHandle stream, Body&& body) {
  return ServeContext(name, [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
    const auto given = std::bit_cast<uint64_t>(stream);
    const uint64_t id = given != 0 ? given : WorkQueues::DefaultOf(ordinal);
    if (!machine.queues.Has(id) || machine.queues.OrdinalOf(id) != ordinal) {
      return code::kInvalidHandle;
    }
    return body(machine, id);
  });
}

// Calls about an event, which `body` gets.
template <typename Body>
DriverCode ServeEvent(const char* name, device::EventHandle event, Body&& body) {
  return ServeContext(name, [&](EmulatedMachine& machine, int) -> DriverCode {
    const auto found = machine.events.find(std::bit_cast<uint64_t>(event));
    return found != machine.events.end() ? body(machine, found->second) : code::kInvalidHandle;
  });
}

// Runs work until `is_done`, or until the context of the caller is lost. Other processes and
// threads may have to act first, so the lock is released in between.
template <typename IsDone>
DriverCode WaitUntil(EmulatedMachine& machine, IsDone&& is_done) {
  auto limit = std::chrono::steady_clock::now() + kWaitMax;
  while (current_context->lost == code::kSuccess && !is_done()) {
    if (machine.queues.Step()) {
      limit = std::chrono::steady_clock::now() + kWaitMax;
      continue;
    }
    if (std::chrono::steady_clock::now() > limit) return kTimedOut;
    machine_mutex.unlock();
    std::this_thread::sleep_for(kPause);
    machine_mutex.lock();
  }
  return code::kSuccess;
}

// Records of an event that lie in the file are not deleted.
inline std::shared_ptr<EventRecords> InFile(EventRecords* records) {
  return std::shared_ptr<EventRecords>(records, [](EventRecords*) {});
}

inline device::EventHandle AddEvent(EmulatedMachine& machine, EmulatedEvent event) {
  const uint64_t id = machine.TakeId();
  machine.events[id] = std::move(event);
  return std::bit_cast<device::EventHandle>(id);
}

// Each adds its functions to the table. The compiler compares them with the declarations there.
void AddDeviceFunctions(device::DriverTable& table);
void AddMemoryFunctions(device::DriverTable& table);
void AddStreamFunctions(device::DriverTable& table);
void AddEventFunctions(device::DriverTable& table);
void AddModuleFunctions(device::DriverTable& table);
void AddPeerFunctions(device::DriverTable& table);
void AddTicketFunctions(device::DriverTable& table);
void AddBatchFunctions(device::DriverTable& table);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_EMULATED_CALLS_H_
