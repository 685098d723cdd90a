#include "lmdbio/feed/row_layout.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::feed {

RowLayout LayoutOf(const load::Batch& batch, const RowOptions& options) {
  RowLayout layout;
  uint64_t end = 0;
  const auto reserve = [&end](uint64_t size_bytes) {
    const uint64_t begin = AlignUp(end, RowLayout::kAlignBytes);
    end = begin + size_bytes;
    return begin;
  };
  for (size_t field = 0; field < batch.field_count(); ++field) {
    FieldLayout rows;
    uint64_t sum_bytes = 0;
    uint64_t largest_bytes = options.row_bytes_min;
    for (size_t i = field; i < batch.record_count(); i += batch.field_count()) {
      sum_bytes += batch.value(i).size();
      largest_bytes = std::max<uint64_t>(largest_bytes, batch.value(i).size());
    }
    if (options.shape == RowShape::kRows) {
      rows.row_bytes = largest_bytes;
      rows.size_bytes = largest_bytes * batch.sample_count();
      rows.rows_at = reserve(rows.size_bytes);
    } else {
      rows.size_bytes = sum_bytes;
      rows.rows_at = reserve(rows.size_bytes);
      rows.offset_count = batch.sample_count() + 1;
      rows.offsets_at = reserve(rows.offset_count * sizeof(uint64_t));
    }
    layout.fields.push_back(rows);
  }
  layout.size_bytes = end;
  return layout;
}

void WriteRows(const load::Batch& batch, const RowLayout& layout, size_t field, MutableBytes rows) {
  const FieldLayout& of_field = layout.fields[field];
  LMDBIO_CHECK(rows.size() == of_field.size_bytes);
  const bool is_packed = of_field.offset_count > 0;
  std::byte* to = rows.data();
  for (size_t i = field; i < batch.record_count(); i += batch.field_count()) {
    const Bytes value = batch.value(i);
    const uint64_t row_bytes = is_packed ? value.size() : of_field.row_bytes;
    if (!value.empty()) std::memcpy(to, value.data(), value.size());
    if (row_bytes > value.size()) std::memset(to + value.size(), 0, row_bytes - value.size());
    to += row_bytes;
  }
}

void WriteOffsets(const load::Batch& batch, size_t field, MutableBytes offsets) {
  LMDBIO_CHECK(offsets.size() == (batch.sample_count() + 1) * sizeof(uint64_t));
  uint64_t sum = 0;
  std::byte* to = offsets.data();
  const auto put = [&] {
    std::memcpy(to, &sum, sizeof sum);
    to += sizeof sum;
  };
  put();
  for (size_t i = field; i < batch.record_count(); i += batch.field_count()) {
    sum += batch.value(i).size();
    put();
  }
}

}  // namespace lmdbio::feed
