// The functions about events.

#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

DriverCode EventCreate(EventHandle* event, unsigned flags) {
  return ServeContext("cuEventCreate", [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
    EmulatedEvent made = {
        .ordinal = ordinal, .flags = flags, .records = nullptr, .shared_place = std::nullopt};
    if ((flags & kEventInterprocess) != 0) {
      if ((flags & kEventDisableTiming) == 0) return code::kInvalidValue;
      uint64_t place = 0;
      made.records = InFile(machine.file.TakeSharedEvent(&place));
      made.shared_place = place;
      if (made.records == nullptr) return code::kOutOfMemory;
    } else {
      made.records = std::make_shared<EventRecords>();
    }
    *event = AddEvent(machine, std::move(made));
    return code::kSuccess;
  });
}

DriverCode EventDestroy(EventHandle event) {
  return ServeEvent("cuEventDestroy", event, [&](EmulatedMachine& machine, EmulatedEvent&) {
    machine.events.erase(std::bit_cast<uint64_t>(event));
    return code::kSuccess;
  });
}

DriverCode EventRecord(EventHandle event, StreamHandle stream) {
  return ServeStream("cuEventRecord", stream, [=](EmulatedMachine& machine, uint64_t id) {
    const auto found = machine.events.find(std::bit_cast<uint64_t>(event));
    if (found == machine.events.end()) return code::kInvalidHandle;
    const std::shared_ptr<EventRecords> records = found->second.records;
    const uint64_t record = ++records->last;
    if (record > EventRecords::kRecordsMax) {  // the place of an older record becomes free
      const DriverCode waited =
          WaitUntil(machine, [&] { return records->IsDone(record - EventRecords::kRecordsMax); });
      if (waited != code::kSuccess) return waited;
    }
    machine.queues.Enqueue(id, {.may_run = nullptr, .run = [&machine, records, record] {
                                  const size_t place = record % EventRecords::kRecordsMax;
                                  records->time[place] = machine.Tick();
                                  records->done[place] = record;
                                }});
    return code::kSuccess;
  });
}

DriverCode StreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  return ServeStream("cuStreamWaitEvent", stream, [=](EmulatedMachine& machine, uint64_t id) {
    const auto found = machine.events.find(std::bit_cast<uint64_t>(event));
    if (found == machine.events.end()) return code::kInvalidHandle;
    const std::shared_ptr<EventRecords> records = found->second.records;
    const uint64_t record = records->last;
    machine.queues.Enqueue(
        id, {.may_run = [records, record] { return records->IsDone(record); }, .run = [] {}});
    return code::kSuccess;
  });
}

DriverCode EventQuery(EventHandle event) {
  return ServeEvent("cuEventQuery", event, [](EmulatedMachine& machine, EmulatedEvent& found) {
    machine.queues.Look();
    return found.records->IsDone(found.records->last) ? code::kSuccess : code::kNotReady;
  });
}

// A millisecond passes with each record that runs.
DriverCode EventElapsedTime(float* milliseconds, EventHandle begin, EventHandle end) {
  return ServeEvent(
      "cuEventElapsedTime", end, [&](EmulatedMachine& machine, EmulatedEvent& last) -> DriverCode {
        const auto found = machine.events.find(std::bit_cast<uint64_t>(begin));
        if (found == machine.events.end()) return code::kInvalidHandle;
        const EmulatedEvent& first = found->second;
        const uint64_t from = first.records->last;
        const uint64_t to = last.records->last;
        if (((first.flags | last.flags) & kEventDisableTiming) != 0 || from == 0 || to == 0) {
          return code::kInvalidHandle;
        }
        if (!first.records->IsDone(from) || !last.records->IsDone(to)) return code::kNotReady;
        *milliseconds = static_cast<float>(last.records->time[to % EventRecords::kRecordsMax]) -
                        static_cast<float>(first.records->time[from % EventRecords::kRecordsMax]);
        return code::kSuccess;
      });
}

}  // namespace

void AddEventFunctions(device::DriverTable& table) {
  table.StreamWaitEvent = StreamWaitEvent;
  table.EventCreate = EventCreate;
  table.EventDestroy = EventDestroy;
  table.EventRecord = EventRecord;
  table.EventQuery = EventQuery;
  table.EventElapsedTime = EventElapsedTime;
}

}  // namespace lmdbio::test
