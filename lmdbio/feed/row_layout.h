// lmdbio/feed/row_layout.h - where the values of a batch lie in a buffer of the device.
//
//   rows     | row 0 of field 0 | row 1 | ... | gap | row 0 of field 1 | ...
//   packed   | values of field 0 | gap | their offsets | gap | values of field 1 | ...
//
// Source: docs/device_feed.md "Rows".
#ifndef LMDBIO_FEED_ROW_LAYOUT_H_
#define LMDBIO_FEED_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/load/loader/batch.h"

namespace lmdbio::feed {

enum class RowShape {
  kRows,    // one value to a row; rows of a field have one size and end in zeros
  kPacked,  // values one behind the other, and offsets
};

struct RowOptions {
  RowShape shape = RowShape::kRows;
  uint64_t row_bytes_min = 0;  // of kRows: the least size of a row
};

// The values of one field of a batch. Offsets are from the begin of the buffer.
struct FieldLayout {
  uint64_t rows_at = 0;
  uint64_t size_bytes = 0;    // of all rows, or of all packed values
  uint64_t row_bytes = 0;     // of kRows
  uint64_t offsets_at = 0;    // of kPacked
  uint64_t offset_count = 0;  // of kPacked: samples + 1; else 0
};

struct RowLayout {
  // Fields and offsets begin at multiples of this.
  static constexpr uint64_t kAlignBytes = 256;

  std::vector<FieldLayout> fields;
  uint64_t size_bytes = 0;  // of all
};

RowLayout LayoutOf(const load::Batch& batch, const RowOptions& options);

// Writes the values of one field, in the form that the device gets: rows end in zeros.
// rows  [layout.fields[field].size_bytes]
void WriteRows(const load::Batch& batch, const RowLayout& layout, size_t field, MutableBytes rows);

// Writes the offsets of one field of kPacked, as uint64.
// offsets  [8 * offset_count]
void WriteOffsets(const load::Batch& batch, size_t field, MutableBytes offsets);

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_ROW_LAYOUT_H_
