// Symptom: one changed byte in the header of a page of fixed-size duplicates gave other records
// without an error: as many items as before, each of another size. Cause: the parser trusted the
// item size of the page. A sub-page has no other field for it, but its header also gives the free
// space, and item size, item count and free space must agree. (Items of two bytes need as much
// space as the slots that count them. So the free space checks their size but not their number; a
// limit on the free items checks the number.)

#include "lmdbio/file/format/fixed_leaf_page.h"
#include "lmdbio/file/format/load.h"
#include "lmdbio/file/layout/cursor.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

constexpr file::PageFormat kFormat(file::DataVersion::k1, 512);
constexpr uint32_t kItemCount = 7;
constexpr uint32_t kItemBytes = 4;

file::PageHeader HeaderOf(uint32_t item_count, uint32_t item_bytes, uint32_t page_bytes) {
  file::PageHeader header;
  header.kind = file::PageKind::kFixedLeaf;
  header.lower_bytes = kFormat.header_bytes() + item_count * file::kSlotBytes;
  // With items of one byte `upper` lies past the end of the page, because `lower` grows by two
  // bytes for each item.
  header.upper_bytes = page_bytes + item_count * file::kSlotBytes - item_count * item_bytes;
  return header;
}

TEST_CASE("FixedLeafPage refuses an item size that contradicts its free space",
          "[format][damage]") {
  for (const uint32_t page_bytes : {512U, 60U}) {
    const std::vector<std::byte> page(page_bytes);
    for (uint32_t wrong_bytes = 1; wrong_bytes < 7; ++wrong_bytes) {
      const file::PageHeader header = HeaderOf(kItemCount, kItemBytes, page_bytes);
      INFO("items of " << wrong_bytes << " bytes in " << page_bytes);
      const auto parsed = file::FixedLeafPage::Parse(kFormat, page, header, wrong_bytes);
      CHECK(parsed.has_value() == (wrong_bytes == kItemBytes));
    }
  }
}

TEST_CASE("FixedLeafPage accepts items of a single byte", "[format][damage]") {
  const std::vector<std::byte> page(512);
  const auto parsed = file::FixedLeafPage::Parse(kFormat, page, HeaderOf(kItemCount, 1, 512), 1);
  REQUIRE(parsed.has_value());
  CHECK(parsed->item_count() == kItemCount);
}

TEST_CASE("A sub-page with a wrong count of two-byte items is refused", "[layout][damage]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Use("", MDB_DUPSORT | MDB_DUPFIXED);
  for (int i = 10; i < 50; ++i) db.Put("key", std::to_string(i));
  db.Commit();
  std::vector<std::byte> file = ReadWholeFile(db.data_file());
  uint64_t first_item = 0;
  {
    const MemorySource sound(file);
    file::Cursor cursor(OpenDatabase(sound));
    REQUIRE(Value(cursor.First()));
    first_item = Value(cursor.ValueExtent()).offset;
  }
  const auto lower = file::Load<uint16_t>(file, first_item - 4);
  REQUIRE(lower == 16 + 40 * file::kSlotBytes);
  const auto fewer = static_cast<uint16_t>(lower - 20 * file::kSlotBytes);
  std::memcpy(&file[first_item - 4], &fewer, sizeof(fewer));

  const MemorySource damaged(file);
  file::Cursor cursor(OpenDatabase(damaged));
  const Result<bool> found = cursor.First();
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().message().find("a sub-page of 20 items has room for 2") != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::test
