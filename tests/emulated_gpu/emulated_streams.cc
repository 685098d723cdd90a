// The functions about streams. An address is looked up when the work that uses it runs.
//
// Work of a device uses memory of another one only with access to it. A copy from device to device
// needs no access: the copy functions find the device of each address ("Unified Addressing" in the
// documentation of the driver), and without access the driver takes such a copy through the host
// ("Peer-to-Peer Memory Copy" in the CUDA programming guide). No document says the same of batches,
// or of copies between the host and a device that is not that of the stream.

#include <atomic>
#include <bit>
#include <cstring>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

constexpr unsigned kOperationsOfCallMax = 255;

DriverCode StreamCreateWithPriority(StreamHandle* stream, unsigned, int) {
  return ServeContext("cuStreamCreateWithPriority", [&](EmulatedMachine& machine, int ordinal) {
    const uint64_t id = machine.TakeId();
    machine.queues.Open(id, ordinal);
    *stream = std::bit_cast<StreamHandle>(id);
    return code::kSuccess;
  });
}

DriverCode StreamDestroy(StreamHandle stream) {
  return ServeStream("cuStreamDestroy", stream, [](EmulatedMachine& machine, uint64_t id) {
    machine.queues.Close(id);
    return code::kSuccess;
  });
}

DriverCode StreamQuery(StreamHandle stream) {
  return ServeStream("cuStreamQuery", stream, [](EmulatedMachine& machine, uint64_t id) {
    machine.queues.Look();
    return machine.queues.IsEmpty(id) ? code::kSuccess : code::kNotReady;
  });
}

DriverCode StreamSynchronize(StreamHandle stream) {
  return ServeStream("cuStreamSynchronize", stream, [](EmulatedMachine& machine, uint64_t id) {
    return WaitUntil(machine, [&] { return machine.queues.IsEmpty(id); });
  });
}

// As the driver, which tells of the default stream nothing but that another one is captured.
DriverCode StreamIsCapturing(StreamHandle stream, CaptureStatus* status) {
  return ServeStream(
      "cuStreamIsCapturing", stream, [&](EmulatedMachine& machine, uint64_t id) -> DriverCode {
        if (stream == nullptr && machine.queues.HasCaptured()) {
          return code::kCapturesImplicitly;
        }
        *status = machine.queues.IsCaptured(id) ? CaptureStatus::kActive : CaptureStatus::kNone;
        return code::kSuccess;
      });
}

template <typename To, typename From>
DriverCode EnqueueCopy(EmulatedMachine& machine, uint64_t id, size_t size, To to, From from) {
  const int ordinal = machine.queues.OrdinalOf(id);
  machine.queues.Enqueue(id, {.may_run = nullptr, .run = [&machine, ordinal, size, to, from] {
                                std::byte* const into = to(machine.tables);
                                const std::byte* const out = from(machine.tables);
                                if (into == nullptr || out == nullptr) {
                                  machine.Lose(ordinal, code::kIllegalAddress);
                                } else {
                                  std::memmove(into, out, size);
                                }
                              }});
  return code::kSuccess;
}

auto OnDevice(int ordinal, uint64_t address, size_t size) {
  return [=](const DeviceTables& tables) { return tables.ResolveFor(ordinal, address, size); };
}

auto OnAnyDevice(uint64_t address, size_t size) {
  return [=](const DeviceTables& tables) { return tables.Resolve(address, size); };
}

auto OnHost(const void* memory, size_t size) {
  return [=](const DeviceTables& tables) { return tables.ResolveHost(memory, size); };
}

// Copies between the device and memory that is not pinned block, as those of a driver do.
template <typename To, typename From>
DriverCode CopyPageable(EmulatedMachine& machine, uint64_t id, size_t size, To to, From from) {
  EnqueueCopy(machine, id, size, to, from);
  return WaitUntil(machine, [&] { return machine.queues.IsEmpty(id); });
}

auto OnPageable(const void* memory) {
  return [=](const DeviceTables&) { return static_cast<std::byte*>(const_cast<void*>(memory)); };
}

DriverCode MemcpyDtoDAsync(uint64_t to, uint64_t from, size_t size, StreamHandle stream) {
  return ServeStream("cuMemcpyDtoDAsync", stream, [=](EmulatedMachine& machine, uint64_t id) {
    return EnqueueCopy(machine, id, size, OnAnyDevice(to, size), OnAnyDevice(from, size));
  });
}

DriverCode MemcpyHtoDAsync(uint64_t to, const void* from, size_t size, StreamHandle stream) {
  return ServeStream("cuMemcpyHtoDAsync", stream, [=](EmulatedMachine& machine, uint64_t id) {
    const auto target = OnDevice(machine.queues.OrdinalOf(id), to, size);
    if (machine.tables.IsPageable(from, size)) {
      return CopyPageable(machine, id, size, target, OnPageable(from));
    }
    return EnqueueCopy(machine, id, size, target, OnHost(from, size));
  });
}

DriverCode MemcpyDtoHAsync(void* to, uint64_t from, size_t size, StreamHandle stream) {
  return ServeStream("cuMemcpyDtoHAsync", stream, [=](EmulatedMachine& machine, uint64_t id) {
    const auto source = OnDevice(machine.queues.OrdinalOf(id), from, size);
    if (machine.tables.IsPageable(to, size)) {
      return CopyPageable(machine, id, size, OnPageable(to), source);
    }
    return EnqueueCopy(machine, id, size, OnHost(to, size), source);
  });
}

DriverCode MemsetD8Async(uint64_t address, unsigned char value, size_t size, StreamHandle stream) {
  return ServeStream("cuMemsetD8Async", stream, [=](EmulatedMachine& machine, uint64_t id) {
    const int ordinal = machine.queues.OrdinalOf(id);
    machine.queues.Enqueue(
        id, {.may_run = nullptr, .run = [&machine, ordinal, address, value, size] {
               std::byte* const into = machine.tables.ResolveFor(ordinal, address, size);
               if (into == nullptr) {
                 machine.Lose(ordinal, code::kIllegalAddress);
               } else {
                 std::memset(into, value, size);
               }
             }});
    return code::kSuccess;
  });
}

// The word of a mark, when the operation runs; null and the end of the context if the device has no
// such word.
uint64_t* WordAt(EmulatedMachine& machine, int ordinal, uint64_t address) {
  std::byte* const word = machine.tables.ResolveFor(ordinal, address, sizeof(uint64_t));
  if (word == nullptr || address % sizeof(uint64_t) != 0) {
    machine.Lose(ordinal, code::kIllegalAddress);
    return nullptr;
  }
  return reinterpret_cast<uint64_t*>(word);
}

void EnqueueMemoryOperation(EmulatedMachine& machine, uint64_t id, MemoryOperation operation) {
  const int ordinal = machine.queues.OrdinalOf(id);
  if (operation.type == MemoryOperationType::kWrite64) {
    machine.queues.Enqueue(id, {.may_run = nullptr, .run = [&machine, ordinal, operation] {
                                  uint64_t* const word =
                                      WordAt(machine, ordinal, operation.address);
                                  if (word == nullptr) return;
                                  std::atomic_ref<uint64_t>(*word).store(operation.value);
                                }});
    return;
  }
  // A wait on memory that is not live ends, and the context with it.
  const auto is_reached = [&machine, ordinal, operation] {
    std::byte* const word = machine.tables.ResolveFor(ordinal, operation.address, sizeof(uint64_t));
    if (word == nullptr) return true;
    const uint64_t found = std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).load();
    return static_cast<int64_t>(found - operation.value) >= 0;
  };
  machine.queues.Enqueue(id, {.may_run = is_reached, .run = [&machine, ordinal, operation] {
                                WordAt(machine, ordinal, operation.address);
                              }});
}

DriverCode StreamWriteValue64(StreamHandle stream, uint64_t address, uint64_t value, unsigned) {
  return ServeStream("cuStreamWriteValue64", stream, [=](EmulatedMachine& machine, uint64_t id) {
    EnqueueMemoryOperation(
        machine, id, {.type = MemoryOperationType::kWrite64, .address = address, .value = value});
    return code::kSuccess;
  });
}

DriverCode StreamBatchMemOp(StreamHandle stream, unsigned count, MemoryOperation* operations,
                            unsigned) {
  return ServeStream("cuStreamBatchMemOp", stream,
                     [=](EmulatedMachine& machine, uint64_t id) -> DriverCode {
                       if (count > kOperationsOfCallMax) return code::kInvalidValue;
                       for (unsigned i = 0; i < count; ++i) {
                         EnqueueMemoryOperation(machine, id, operations[i]);
                       }
                       return code::kSuccess;
                     });
}

}  // namespace

void AddStreamFunctions(device::DriverTable& table) {
  table.StreamCreateWithPriority = StreamCreateWithPriority;
  table.StreamDestroy = StreamDestroy;
  table.StreamQuery = StreamQuery;
  table.StreamSynchronize = StreamSynchronize;
  table.StreamIsCapturing = StreamIsCapturing;
  table.MemsetD8Async = MemsetD8Async;
  table.MemcpyDtoDAsync = MemcpyDtoDAsync;
  table.MemcpyHtoDAsync = MemcpyHtoDAsync;
  table.MemcpyDtoHAsync = MemcpyDtoHAsync;
  table.StreamWriteValue64 = StreamWriteValue64;
  table.StreamBatchMemOp = StreamBatchMemOp;
}

}  // namespace lmdbio::test
