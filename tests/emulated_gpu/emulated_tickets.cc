// The functions between processes. A ticket is plain data that another process with the same file
// understands.

#include <unistd.h>

#include <cstring>
#include <optional>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

struct TicketContent {
  uint64_t file;
  int64_t process;
  int64_t ordinal;
  uint64_t place;  // offset of memory, or number of an event
  uint64_t size_bytes;
};

template <typename Handle>
DriverCode WriteTicket(Handle* handle, int ordinal, uint64_t place, uint64_t size_bytes) {
  static_assert(sizeof(TicketContent) <= sizeof(Handle));
  const TicketContent ticket = {.file = TheFile().identity(),
                                .process = ::getpid(),
                                .ordinal = ordinal,
                                .place = place,
                                .size_bytes = size_bytes};
  *handle = {};
  std::memcpy(handle, &ticket, sizeof(ticket));
  return code::kSuccess;
}

// The driver refuses tickets of its own process.
template <typename Handle>
DriverCode ReadTicket(const EmulatedMachine& machine, const Handle& handle, TicketContent* ticket) {
  std::memcpy(ticket, &handle, sizeof(*ticket));
  if (machine.import_refusal != code::kSuccess) return machine.import_refusal;
  if (ticket->process == ::getpid()) return code::kInvalidContext;
  return ticket->file == TheFile().identity() ? code::kSuccess : code::kInvalidValue;
}

DriverCode IpcGetMemHandle(IpcMemoryHandle* handle, uint64_t address) {
  return ServeContext("cuIpcGetMemHandle", [&](EmulatedMachine& machine, int) -> DriverCode {
    const LiveMemory* const memory = machine.tables.Find(address);
    if (memory == nullptr || memory->begin != address ||
        memory->origin != MemoryOrigin::kAllocated) {
      return code::kInvalidValue;
    }
    return WriteTicket(handle, memory->ordinal, memory->offset, memory->size_bytes);
  });
}

// The flag makes the driver give the device access to the one that has the memory.
DriverCode IpcOpenMemHandle(uint64_t* address, IpcMemoryHandle handle, unsigned flags) {
  return ServeContext("cuIpcOpenMemHandle", [&](EmulatedMachine& machine, int ordinal) {
    TicketContent ticket = {};
    const DriverCode read = ReadTicket(machine, handle, &ticket);
    if (read != code::kSuccess) return read;
    if (flags != kIpcLazyPeerAccess) return code::kInvalidValue;
    if (!machine.tables.peers().Reaches(ordinal, static_cast<int>(ticket.ordinal))) {
      return code::kPeerAccessUnsupported;
    }
    *address = machine.tables.Import(ordinal, ticket.place, ticket.size_bytes);
    return code::kSuccess;
  });
}

DriverCode IpcCloseMemHandle(uint64_t address) {
  return ServeContext("cuIpcCloseMemHandle", [&](EmulatedMachine& machine, int) {
    return machine.tables.CloseImport(address) ? code::kSuccess : code::kInvalidValue;
  });
}

DriverCode IpcGetEventHandle(IpcEventHandle* handle, EventHandle event) {
  return ServeEvent("cuIpcGetEventHandle", event,
                    [&](EmulatedMachine&, EmulatedEvent& found) -> DriverCode {
                      if (!found.shared_place) return code::kInvalidHandle;
                      return WriteTicket(handle, found.ordinal, *found.shared_place, 0);
                    });
}

DriverCode IpcOpenEventHandle(EventHandle* event, IpcEventHandle handle) {
  return ServeContext("cuIpcOpenEventHandle", [&](EmulatedMachine& machine, int ordinal) {
    TicketContent ticket = {};
    const DriverCode read = ReadTicket(machine, handle, &ticket);
    if (read != code::kSuccess) return read;
    EventRecords* const records = machine.file.SharedEvent(ticket.place);
    if (records == nullptr) return code::kInvalidValue;
    *event = AddEvent(machine, {.ordinal = ordinal,
                                .flags = kEventDisableTiming | kEventInterprocess,
                                .records = InFile(records),
                                .shared_place = std::nullopt});
    return code::kSuccess;
  });
}

}  // namespace

void AddTicketFunctions(device::DriverTable& table) {
  table.IpcGetMemHandle = IpcGetMemHandle;
  table.IpcOpenMemHandle = IpcOpenMemHandle;
  table.IpcCloseMemHandle = IpcCloseMemHandle;
  table.IpcGetEventHandle = IpcGetEventHandle;
  table.IpcOpenEventHandle = IpcOpenEventHandle;
}

}  // namespace lmdbio::test
