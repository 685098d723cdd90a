// Goal: rows lie where the layout says, and no two things of a batch share a byte.
#include "lmdbio/feed/row_layout.h"

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::feed {
namespace {

// A batch of values in memory of its own.
struct OwnBatch {
  OwnBatch(const std::vector<std::string>& values, size_t field_count) {
    for (const std::string& value : values) text += value;
    uint64_t at = 0;
    for (const std::string& value : values) {
      load::RecordEntry entry = {};
      entry.value_at = at;
      entry.value_bytes = static_cast<uint32_t>(value.size());
      at += value.size();
      entries.push_back(entry);
    }
    batch = load::Batch({}, reinterpret_cast<std::uintptr_t>(text.data()), entries, 0, field_count);
  }
  std::string text;
  std::vector<load::RecordEntry> entries;
  load::Batch batch;
};

TEST_CASE("Rows of a field have the size of its largest value, or the least", "[row_layout]") {
  const OwnBatch own({"abc", "x", "", "yz"}, 2);
  const RowLayout layout = LayoutOf(own.batch, {RowShape::kRows, 0});
  REQUIRE(layout.fields.size() == 2);
  CHECK(layout.fields[0].row_bytes == 3);
  CHECK(layout.fields[0].size_bytes == 6);
  CHECK(layout.fields[0].rows_at == 0);
  CHECK(layout.fields[1].row_bytes == 2);
  CHECK(layout.fields[1].rows_at == 256);
  CHECK(layout.size_bytes == 260);
  const RowLayout wide = LayoutOf(own.batch, {RowShape::kRows, 8});
  CHECK(wide.fields[0].row_bytes == 8);
  CHECK(wide.fields[1].size_bytes == 16);

  std::string rows(6, '!');
  WriteRows(own.batch, layout, 0, std::as_writable_bytes(std::span(rows)));
  CHECK(rows == std::string("abc\0\0\0", 6));
  rows.assign(4, '!');
  WriteRows(own.batch, layout, 1, std::as_writable_bytes(std::span(rows)));
  CHECK(rows == std::string("x\0yz", 4));
}

TEST_CASE("Packed values have offsets behind them", "[row_layout]") {
  const OwnBatch own({"abc", "x", "", "yz"}, 1);
  const RowLayout layout = LayoutOf(own.batch, {RowShape::kPacked, 100});
  REQUIRE(layout.fields.size() == 1);
  CHECK(layout.fields[0].row_bytes == 0);
  CHECK(layout.fields[0].size_bytes == 6);
  CHECK(layout.fields[0].offset_count == 5);
  CHECK(layout.fields[0].offsets_at == 256);
  CHECK(layout.size_bytes == 256 + 40);
  std::string packed(6, '!');
  WriteRows(own.batch, layout, 0, std::as_writable_bytes(std::span(packed)));
  CHECK(packed == "abcxyz");
  std::vector<uint64_t> offsets(5);
  WriteOffsets(own.batch, 0, std::as_writable_bytes(std::span(offsets)));
  CHECK(offsets == std::vector<uint64_t>{0, 3, 4, 4, 6});
}

TEST_CASE("A batch without records, or without bytes, has a layout", "[row_layout]") {
  const OwnBatch none({}, 1);
  CHECK(LayoutOf(none.batch, {RowShape::kRows, 16}).size_bytes == 0);
  CHECK(LayoutOf(none.batch, {RowShape::kPacked, 0}).size_bytes == 8);
  const OwnBatch empty({"", ""}, 1);
  CHECK(LayoutOf(empty.batch, {}).fields[0].row_bytes == 0);
  CHECK(LayoutOf(empty.batch, {}).size_bytes == 0);
}

}  // namespace
}  // namespace lmdbio::feed
