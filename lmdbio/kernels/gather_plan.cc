#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_plans.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;

uint64_t PiecesOf(uint64_t row_bytes) {
  return row_bytes / kGatherPieceBytes + (row_bytes % kGatherPieceBytes != 0 ? 1 : 0);
}

Status CheckValue(const GatherWork& work, size_t index) {
  const GatherValue& value = work.values[index];
  const uint64_t window_bytes = work.window.span().size_bytes;
  if (!work.window.span().Holds(value.offset, value.size_bytes)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("value {} of {} bytes at offset {} of a window of {} bytes", index,
                            value.size_bytes, value.offset, window_bytes));
  }
  if (!work.row_bytes || value.size_bytes <= *work.row_bytes) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("value {} of {} bytes does not fit into a row of {} bytes", index,
                          value.size_bytes, *work.row_bytes));
}

Status CheckValues(const GatherWork& work) {
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < work.values.size(); ++i) {
    LMDBIO_TRY_VOID(CheckValue(work, i));
    const uint64_t row_bytes = work.row_bytes.value_or(work.values[i].size_bytes);
    if (row_bytes > work.rows.size_bytes - total_bytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("value {} of {} does not fit into rows of {} bytes in all", i,
                              work.values.size(), work.rows.size_bytes));
    }
    total_bytes += row_bytes;
  }
  return {};
}

// The place of the list of pieces.
Result<DeviceSpan> ListOf(const GatherWork& work) {
  const DeviceSpan memory = work.list.span();
  const uint64_t list_bytes = GatherListBytes(work.values, work.row_bytes);
  if (!memory.Holds(work.list_offset, list_bytes)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a list of {} bytes at offset {} of {} pinned bytes", list_bytes,
                            work.list_offset, memory.size_bytes));
  }
  const DeviceSpan list = {memory.begin + work.list_offset, list_bytes};
  if (list.begin.value % alignof(GatherPiece) == 0) return list;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("a list at the address {:#x}, no multiple of {}", list.begin.value,
                          alignof(GatherPiece)));
}

// The list is written now, and the rows while values and the list are read.
Status CheckOverlaps(const GatherWork& work, const DeviceSpan& list) {
  const DeviceSpan window = work.window.span();
  if (!work.rows.HasAddresses()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rows at the address {:#x}", work.rows.begin.value));
  }
  if (work.rows.Overlaps(window) || work.rows.Overlaps(list)) {
    return Fail(ErrorCode::kInvalidArgument, "the rows overlap the window or the list");
  }
  for (size_t i = 0; i < work.values.size(); ++i) {
    const GatherValue& value = work.values[i];
    if (!list.Overlaps({window.begin + value.offset, value.size_bytes})) continue;
    return Fail(ErrorCode::kInvalidArgument, fmt::format("the list overlaps value {}", i));
  }
  return {};
}

// Writes pieces one behind the other.
class PieceWriter {
 public:
  explicit PieceWriter(std::byte* next) : next_(next) {}

  // A row: `copy_bytes` from a value, and then zeros.
  void Add(uint64_t from, uint64_t copy_bytes, uint64_t to, uint64_t row_bytes) {
    for (uint64_t at = 0; at < row_bytes; at += kGatherPieceBytes) {
      const uint64_t here_bytes = std::min(row_bytes - at, kGatherPieceBytes);
      const uint64_t copied_bytes = at < copy_bytes ? std::min(copy_bytes - at, here_bytes) : 0;
      Put({.from = from + at,
           .to = to + at,
           .copy_bytes = static_cast<uint32_t>(copied_bytes),
           .fill_bytes = static_cast<uint32_t>(here_bytes - copied_bytes)});
    }
  }

 private:
  void Put(const GatherPiece& piece) {
    std::memcpy(next_, &piece, sizeof(piece));
    next_ += sizeof(piece);
  }

  std::byte* next_;
};

}  // namespace

uint64_t GatherListBytes(std::span<const GatherValue> values, std::optional<uint64_t> row_bytes) {
  uint64_t pieces = 0;
  for (const GatherValue& value : values) pieces += PiecesOf(row_bytes.value_or(value.size_bytes));
  return pieces * sizeof(GatherPiece);
}

Result<GatherTable> PlanGather(const GatherWork& work) {
  LMDBIO_TRY_VOID(CheckValues(work));
  LMDBIO_TRY(const DeviceSpan list, ListOf(work));
  LMDBIO_TRY_VOID(CheckOverlaps(work, list));
  PieceWriter writer(work.list.bytes().data() + work.list_offset);
  const uint64_t window = work.window.span().begin.value;
  uint64_t row = work.rows.begin.value;
  for (const GatherValue& value : work.values) {
    const uint64_t row_bytes = work.row_bytes.value_or(value.size_bytes);
    writer.Add(window + value.offset, value.size_bytes, row, row_bytes);
    row += row_bytes;
  }
  return GatherTable{.pieces = list.begin.value,
                     .piece_count = list.size_bytes / sizeof(GatherPiece)};
}

}  // namespace lmdbio::kernels
