#include <algorithm>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_plans.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;

Status CheckNumber(std::string_view what, size_t number, uint32_t number_max) {
  if (number >= 1 && number <= number_max) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("a reduction with {} {}s; it can have 1 to {}", number, what, number_max));
}

Result<uint64_t> SizeOf(const ReduceWork& work) {
  const uint64_t element_bytes = sync::ElementBytes(work.type);
  if (work.count <= std::numeric_limits<uint64_t>::max() / element_bytes) {
    return work.count * element_bytes;
  }
  return Fail(ErrorCode::kInvalidArgument, fmt::format("a reduction of {} elements", work.count));
}

Status CheckArray(std::string_view what, size_t index, const DeviceSpan& span,
                  uint64_t size_bytes) {
  if (span.size_bytes < size_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {} of a reduction has {} bytes; {} are needed", what, index,
                            span.size_bytes, size_bytes));
  }
  if (DeviceSpan{span.begin, size_bytes}.HasAddresses()) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} {} of a reduction is at the address {:#x}", what, index, span.begin.value));
}

Status CheckArrays(std::string_view what, std::span<const DeviceSpan> spans, uint64_t size_bytes) {
  for (size_t i = 0; i < spans.size(); ++i) {
    LMDBIO_TRY_VOID(CheckArray(what, i, spans[i], size_bytes));
  }
  return {};
}

// Each thread writes only what it has read before. So a target may be a source, but not a part of
// one with other elements.
Status CheckOverlaps(const ReduceWork& work, uint64_t size_bytes) {
  for (size_t t = 0; t < work.targets.size(); ++t) {
    const DeviceSpan target = {work.targets[t].begin, size_bytes};
    for (size_t s = 0; s < work.sources.size(); ++s) {
      const DeviceSpan source = {work.sources[s].begin, size_bytes};
      if (source.begin == target.begin || !source.Overlaps(target)) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("target {} of a reduction overlaps a part of source {} with other elements",
                      t, s));
    }
    for (size_t other = 0; other < t; ++other) {
      if (!target.Overlaps({work.targets[other].begin, size_bytes})) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("targets {} and {} of a reduction overlap", other, t));
    }
  }
  return {};
}

// Words are possible if all arrays reach the begin of a word at the same element.
void SplitArrays(uint64_t element_bytes, ReduceTable& table) {
  const uint64_t past_word = table.sources[0] % kWordBytes;
  const auto fits = [&](uint64_t address) { return address % kWordBytes == past_word; };
  const bool are_alike = std::all_of(table.sources, table.sources + table.source_count, fits) &&
                         std::all_of(table.targets, table.targets + table.target_count, fits);
  table.head_bytes = table.size_bytes;
  if (!are_alike || past_word % element_bytes != 0) return;
  const uint64_t head_bytes = (kWordBytes - past_word) % kWordBytes;
  if (head_bytes >= table.size_bytes) return;
  table.words = (table.size_bytes - head_bytes) / kWordBytes;
  if (table.words > 0) table.head_bytes = head_bytes;
}

}  // namespace

Result<ReduceTable> PlanReduce(const ReduceWork& work) {
  ReduceTable table;
  LMDBIO_TRY(table.scale, PlanScale(work.type, work.reduction.scale));
  if (!sync::IsReduceOp(static_cast<uint8_t>(work.reduction.op))) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("reduction number {} is unknown", static_cast<int>(work.reduction.op)));
  }
  LMDBIO_TRY_VOID(CheckNumber("source", work.sources.size(), kReduceSourcesMax));
  LMDBIO_TRY_VOID(CheckNumber("target", work.targets.size(), kReduceTargetsMax));
  LMDBIO_TRY(const uint64_t size_bytes, SizeOf(work));
  LMDBIO_TRY_VOID(CheckArrays("source", work.sources, size_bytes));
  LMDBIO_TRY_VOID(CheckArrays("target", work.targets, size_bytes));
  LMDBIO_TRY_VOID(CheckOverlaps(work, size_bytes));
  table.size_bytes = size_bytes;
  table.source_count = static_cast<uint32_t>(work.sources.size());
  table.target_count = static_cast<uint32_t>(work.targets.size());
  const auto address = [](const DeviceSpan& span) { return span.begin.value; };
  std::transform(work.sources.begin(), work.sources.end(), table.sources, address);
  std::transform(work.targets.begin(), work.targets.end(), table.targets, address);
  SplitArrays(sync::ElementBytes(work.type), table);
  return table;
}

}  // namespace lmdbio::kernels
