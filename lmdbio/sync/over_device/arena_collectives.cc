#include "lmdbio/sync/over_device/arena_collectives.h"

#include <bit>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"

namespace lmdbio::sync {

Status CheckInside(const DeviceValues& values, const device::DeviceSpan& arena) {
  if (values.count <= arena.size_bytes / ElementBytes(values.type) &&
      arena.Holds(values.offset, values.size_bytes())) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} values of {} at offset {} are not inside an arena of {} bytes",
                          values.count, NameOf(values.type), values.offset, arena.size_bytes));
}

uint64_t DigestOfReduction(const CallTag& tag, const DeviceValues& values,
                           const Reduction& reduction) {
  const uint64_t call[] = {tag.digest, values.count, static_cast<uint64_t>(values.type),
                           static_cast<uint64_t>(reduction.op),
                           std::bit_cast<uint64_t>(reduction.scale)};
  return TextDigest({reinterpret_cast<const char*>(call), sizeof(call)});
}

uint64_t DigestOfBroadcast(const CallTag& tag, const DeviceValues& values, int root) {
  const uint64_t call[] = {static_cast<uint64_t>(root), tag.digest, values.size_bytes()};
  return TextDigest({reinterpret_cast<const char*>(call), sizeof(call)});
}

}  // namespace lmdbio::sync
