// The function that enqueues many copies in one call.

#include <cstring>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

// The copies have no order among them: they run from the last to the first.
DriverCode MemcpyBatchAsync(uint64_t* to, uint64_t* from, size_t* sizes, size_t count,
                            MemcpyAttributes* attributes, size_t* first_copies,
                            size_t attributes_count, size_t* failed, StreamHandle stream) {
  return ServeStream(
      "cuMemcpyBatchAsync", stream, [&](EmulatedMachine& machine, uint64_t id) -> DriverCode {
        *failed = SIZE_MAX;
        const bool is_plain = attributes_count == 1 && first_copies[0] == 0 &&
                              attributes[0].source_order == 1 && attributes[0].flags == 0;
        // The default stream is refused.
        if (!is_plain || stream == nullptr || count == 0) return code::kInvalidValue;
        const int ordinal = machine.queues.OrdinalOf(id);
        for (size_t i = count; i-- > 0;) {
          machine.queues.Enqueue(
              id, {.may_run = nullptr,
                   .run = [&machine, ordinal, target = to[i], source = from[i], size = sizes[i]] {
                     std::byte* const into = machine.tables.ResolveFor(ordinal, target, size);
                     const std::byte* const out = machine.tables.ResolveFor(ordinal, source, size);
                     if (into == nullptr || out == nullptr) {
                       machine.Lose(ordinal, code::kIllegalAddress);
                     } else {
                       std::memmove(into, out, size);
                     }
                   }});
        }
        return code::kSuccess;
      });
}

}  // namespace

void AddBatchFunctions(device::DriverTable& table) { table.MemcpyBatchAsync = MemcpyBatchAsync; }

}  // namespace lmdbio::test
