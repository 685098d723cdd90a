// Symptom: sound files were refused as damaged. Cause: the parsers accepted only pages of present
// LMDB versions. LMDB up to 0.9.16 wrote no item size on the pages of a tree of packed duplicates
// (the tree's record has it). LMDB up to 0.9.10 left a gap on a branch page when it shortened a
// key.

#include <string>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/load.h"
#include "lmdbio/file/layout/record_scan.h"
#include "tests/file/format/page_image.h"
#include "tests/file/layout/open_database.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

constexpr uint16_t kPackedLeafFlags = 0x22;

// Overwrites the item size on every page of packed duplicates. Returns: the number of such pages
uint64_t SpoilItemSizes(std::vector<std::byte>& file, uint16_t item_bytes) {
  uint64_t page_count = 0;
  for (size_t page = 2 * 4096; page < file.size(); page += 4096) {
    if (file::Load<uint64_t>(file, page) != page / 4096) continue;  // inside an overflow run
    if (file::Load<uint16_t>(file, page + 10) != kPackedLeafFlags) continue;
    std::memcpy(&file[page + 8], &item_bytes, sizeof(item_bytes));
    ++page_count;
  }
  return page_count;
}

TEST_CASE("Packed duplicates are read with the item size of their tree", "[layout]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("dupfixed-main"), dir.path());
  std::vector<std::byte> file = ReadWholeFile(fixture.data_file);
  REQUIRE(SpoilItemSizes(file, GENERATE(uint16_t{0}, uint16_t{0xABCD})) > 1);
  WriteWholeFile(fixture.data_file, file);

  const MemorySource source(file);
  file::RecordScan scan(OpenDatabase(source));
  for (const auto& [key, value] : LmdbRecords(fixture.data_file)) {
    REQUIRE(Value(scan.Next()));
    REQUIRE(Text(scan.cursor().key()) == key);
    REQUIRE(Text(Value(scan.cursor().Value())) == value);
  }
  REQUIRE_FALSE(Value(scan.Next()));
}

// A branch page of three nodes, from offset 4096 - 60 on. The middle node is `shortened_by` bytes
// shorter than its space.
PageImage BranchWithGap(file::DataVersion version, uint16_t shortened_by) {
  PageImage image(file::PageFormat(version, 4096), 7, PageImage::kBranch);
  image.PutChild("", 2).PutChild("a key of 20 letters!", 3).PutChild("b key of 20 letters!", 4);
  const size_t key_bytes = image.node_at(1) + 6;
  return image.Set<uint16_t>(key_bytes, static_cast<uint16_t>(20 - shortened_by));
}

Result<file::BranchPage> ParseBranch(const PageImage& image) {
  const auto header = file::ParsePageHeader(image.format(), image.bytes(), PageNo{7});
  REQUIRE(header.has_value());
  return file::BranchPage::Parse(image.format(), image.bytes(), *header);
}

TEST_CASE("A branch page of version 1 may have gaps", "[format]") {
  const auto shortened_by = GENERATE(as<uint16_t>(), 2, 3, 8, 12, 20);
  INFO("shortened by " << shortened_by);
  const PageImage image = BranchWithGap(file::DataVersion::k1, shortened_by);
  const auto branch = ParseBranch(image);
  REQUIRE(branch.has_value());
  REQUIRE(branch->child_count() == 3);
  CHECK(branch->child(1).value == 3);
  CHECK(Text(branch->key(1)) == std::string("a key of 20 letters!").substr(0, 20 - shortened_by));
  CHECK(branch->child(2).value == 4);
  CHECK_FALSE(ParseBranch(BranchWithGap(file::DataVersion::k3, shortened_by)).has_value());
}

TEST_CASE("A branch node without a slot is not treated as a gap", "[format][damage]") {
  PageImage image(file::PageFormat(file::DataVersion::k1, 4096), 7, PageImage::kBranch);
  image.PutChild("", 2).PutChild("middle", 3).PutChild("the last", 4);
  REQUIRE(ParseBranch(image).has_value());
  const auto lower = image.Get<uint16_t>(image.lower_at());
  CHECK_FALSE(ParseBranch(image.Set<uint16_t>(image.lower_at(), lower - 2)).has_value());
  CHECK_FALSE(ParseBranch(image.Set<uint16_t>(image.lower_at(), lower - 4)).has_value());
}

}  // namespace
}  // namespace lmdbio::test
