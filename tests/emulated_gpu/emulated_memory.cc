// The functions about memory of devices and pinned memory.

#include <bit>
#include <cstring>
#include <fstream>
#include <string>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

// Whether the page at `memory` is mapped, and may be written to.
bool IsWritable(const void* memory) {
  const auto at = std::bit_cast<uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t used = 0;
    const uint64_t begin = std::stoull(line, &used, 16);
    std::size_t more = 0;
    const uint64_t end = std::stoull(line.substr(used + 1), &more, 16);
    if (at >= begin && at < end) return line.at(used + 1 + more + 2) == 'w';
  }
  return false;
}

DriverCode MemAlloc(uint64_t* address, size_t size) {
  return ServeContext("cuMemAlloc", [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
    if (size == 0) return code::kInvalidValue;
    *address = machine.tables.Allocate(ordinal, size, MemoryOrigin::kAllocated);
    return *address != 0 ? code::kSuccess : code::kOutOfMemory;
  });
}

// Work that still uses the memory is not awaited: it faults when it runs.
DriverCode MemFree(uint64_t address) {
  return ServeContext("cuMemFree", [&](EmulatedMachine& machine, int) {
    return machine.tables.Free(address) ? code::kSuccess : code::kInvalidValue;
  });
}

DriverCode MemGetInfo(size_t* free, size_t* total) {
  return ServeContext("cuMemGetInfo", [&](EmulatedMachine& machine, int ordinal) {
    *free = kEmulatedMemoryBytes - machine.tables.UsedBytes(ordinal);
    *total = kEmulatedMemoryBytes;
    return code::kSuccess;
  });
}

DriverCode MemHostRegister(void* memory, size_t size, unsigned) {
  return ServeContext("cuMemHostRegister",
                      [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
                        if (!IsWritable(memory)) return code::kInvalidValue;
                        return machine.tables.Pin(ordinal, memory, size);
                      });
}

DriverCode MemHostUnregister(void* memory) {
  return ServeContext("cuMemHostUnregister", [&](EmulatedMachine& machine, int) {
    return machine.tables.Unpin(memory) ? code::kSuccess : code::kInvalidValue;
  });
}

DriverCode MemHostGetDevicePointer(uint64_t* address, void* memory, unsigned) {
  return ServeContext("cuMemHostGetDevicePointer",
                      [&](EmulatedMachine& machine, int) -> DriverCode {
                        if (machine.tables.ResolveHost(memory, 1) == nullptr) {
                          return code::kInvalidValue;
                        }
                        *address = std::bit_cast<uint64_t>(memory) + kPinnedOffset;
                        return code::kSuccess;
                      });
}

// The values have the types that the driver gives them.
void SetPointerAttribute(void* value, PointerAttribute attribute, const LiveMemory* memory) {
  const auto put = [value](auto content) { std::memcpy(value, &content, sizeof(content)); };
  const bool is_host = memory != nullptr && memory->origin == MemoryOrigin::kPinned;
  switch (attribute) {
    case PointerAttribute::kMemoryType:
      put(memory == nullptr ? DriverMemoryType::kUnknown
                            : (is_host ? DriverMemoryType::kHost : DriverMemoryType::kDevice));
      return;
    case PointerAttribute::kBufferId:
      put(memory != nullptr ? memory->buffer_id : uint64_t{0});
      return;
    case PointerAttribute::kIsManaged:
      put(unsigned{memory != nullptr && memory->origin == MemoryOrigin::kManaged});
      return;
    case PointerAttribute::kDeviceOrdinal:
      put(memory != nullptr ? memory->ordinal : -2);
      return;
    case PointerAttribute::kCanBeShared:
      put(memory != nullptr && memory->origin == MemoryOrigin::kAllocated);
      return;
    case PointerAttribute::kRangeBegin:
      put(memory != nullptr ? memory->begin : uint64_t{0});
      return;
    case PointerAttribute::kRangeSizeBytes:
      put(memory != nullptr ? memory->size_bytes : uint64_t{0});
      return;
  }
}

DriverCode PointerGetAttributes(unsigned count, PointerAttribute* attributes, void** values,
                                uint64_t address) {
  return ServeContext("cuPointerGetAttributes", [&](EmulatedMachine& machine, int) {
    const LiveMemory* const memory = machine.tables.Find(address);
    for (unsigned i = 0; i < count; ++i) SetPointerAttribute(values[i], attributes[i], memory);
    return code::kSuccess;
  });
}

}  // namespace

void AddMemoryFunctions(device::DriverTable& table) {
  table.MemAlloc = MemAlloc;
  table.MemFree = MemFree;
  table.MemGetInfo = MemGetInfo;
  table.MemHostRegister = MemHostRegister;
  table.MemHostUnregister = MemHostUnregister;
  table.MemHostGetDevicePointer = MemHostGetDevicePointer;
  table.PointerGetAttributes = PointerGetAttributes;
}

}  // namespace lmdbio::test
