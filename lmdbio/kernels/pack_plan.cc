#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_plans.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;

// The place of tensor `index`, whose predecessor ends at `end` in the buffer.
Status CheckPlace(const PackWork& work, size_t index, uint64_t end) {
  const DeviceSpan& tensor = work.tensors[index];
  const uint64_t offset = work.offsets[index];
  const auto wrong = [&](const char* reason) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor {} of {} bytes at offset {} of a buffer of {} bytes {}", index,
                            tensor.size_bytes, offset, work.buffer.size_bytes, reason));
  };
  if (!work.buffer.Holds(offset, tensor.size_bytes)) return wrong("does not fit");
  if (offset < end) return wrong("begins before the end of the one before it");
  if (tensor.size_bytes == 0) return {};
  if (!tensor.HasAddresses()) return wrong("has no valid address");
  if (work.scale != 1 && tensor.size_bytes % sync::ElementBytes(work.type) != 0) {
    return wrong("is no whole number of elements");
  }
  if (tensor.Overlaps(work.buffer) && tensor.begin != work.buffer.begin + offset) {
    return wrong("overlaps the buffer in another place");
  }
  return {};
}

}  // namespace

Result<std::vector<PackPart>> PlanPack(const PackWork& work) {
  LMDBIO_TRY_VOID(PlanScale(work.type, work.scale));
  if (work.tensors.size() != work.offsets.size()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} tensors with {} offsets",
                                                         work.tensors.size(), work.offsets.size()));
  }
  if (!work.buffer.HasAddresses()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a buffer of {} bytes at the address {:#x}", work.buffer.size_bytes,
                            work.buffer.begin.value));
  }
  std::vector<PackPart> parts;
  parts.reserve(work.tensors.size());
  uint64_t place_end = 0;
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < work.tensors.size(); ++i) {
    LMDBIO_TRY_VOID(CheckPlace(work, i, place_end));
    const DeviceSpan& tensor = work.tensors[i];
    const uint64_t place = work.buffer.begin.value + work.offsets[i];
    place_end = work.offsets[i] + tensor.size_bytes;
    if (tensor.size_bytes == 0) continue;
    if (work.scale == 1 && tensor.begin.value == place) continue;
    total_bytes += tensor.size_bytes;
    const bool is_packed = work.direction == PackDirection::kPack;
    parts.push_back({.from = is_packed ? tensor.begin.value : place,
                     .to = is_packed ? place : tensor.begin.value,
                     .end = total_bytes});
  }
  return parts;
}

void FillPackTable(std::span<const PackPart> parts, uint32_t blocks, PackTable& table) {
  const uint64_t share_bytes = (parts.back().end + blocks - 1) / blocks;
  table.share_bytes = (share_bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
  table.part_count = static_cast<uint32_t>(parts.size());
  std::copy(parts.begin(), parts.end(), table.parts);
}

}  // namespace lmdbio::kernels
