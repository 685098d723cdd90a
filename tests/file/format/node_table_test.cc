// Goal: NodeTable reads a slotted page as it was written, and refuses a page with inconsistent
// slots and nodes.
#include "lmdbio/file/format/node_table.h"

#include <string>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/leaf_page.h"
#include "tests/file/format/page_image.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

using file::DataVersion;
using file::LeafPage;
using file::PageFormat;

constexpr PageFormat kVersion1(DataVersion::k1, 4096);
constexpr PageFormat kVersion3(DataVersion::k3, 4096);

std::string Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<LeafPage> ParseLeaf(const PageImage& image) {
  const auto header = file::ParsePageHeader(image.format(), image.bytes(), PageNo{7});
  REQUIRE(header.has_value());
  return LeafPage::Parse(image.format(), image.bytes(), *header);
}

std::string Refusal(const PageImage& image) {
  const Result<LeafPage> page = ParseLeaf(image);
  if (page) return "accepted";
  CHECK(page.error().code() == ErrorCode::kCorruption);
  return page.error().message();
}

PageImage ThreeNodes(PageFormat format) {
  PageImage image(format, 7, PageImage::kLeaf);
  image.Put("key0", "value0").Put("odd", "").Put("key2", std::string(100, 'x'));
  return image;
}

TEST_CASE("LeafPage reads the nodes of both data versions", "[format]") {
  for (const PageFormat format : {kVersion1, kVersion3}) {
    const PageImage image = ThreeNodes(format);
    const Result<LeafPage> page = ParseLeaf(image);
    REQUIRE(page.has_value());
    REQUIRE(page->entry_count() == 3);
    CHECK(Text(page->Entry(0).key) == "key0");
    CHECK(Text(page->Entry(0).data) == "value0");
    CHECK(Text(page->Entry(1).key) == "odd");
    CHECK(page->Entry(1).data.empty());
    CHECK(page->Entry(2).value_bytes == 100);
    CHECK(page->Entry(2).data.data() == image.bytes().data() + page->Entry(2).data_offset);
  }
}

TEST_CASE("LeafPage reads an overflow reference", "[format]") {
  PageImage image(kVersion1, 7, PageImage::kLeaf);
  const uint64_t run = 0x0123456789;
  image.Put("k", {reinterpret_cast<const char*>(&run), sizeof(run)}, file::kOverflowNode);
  image.Set<uint16_t>(image.node_at(0), 5000);  // the size of the value, not of the reference
  const Result<LeafPage> page = ParseLeaf(image);
  REQUIRE(page.has_value());
  CHECK(page->Entry(0).value_bytes == 5000);
  CHECK(page->Reference(page->Entry(0)).first_page.value == run);
}

TEST_CASE("BranchPage reads 48-bit child page numbers", "[format]") {
  PageImage image(kVersion1, 7, PageImage::kBranch);
  image.PutChild("", 0x123456789ABC).PutChild("middle", 3);
  const auto header = file::ParsePageHeader(kVersion1, image.bytes(), PageNo{7});
  const auto page = file::BranchPage::Parse(kVersion1, image.bytes(), *header);
  REQUIRE(page.has_value());
  REQUIRE(page->child_count() == 2);
  CHECK(page->child(0).value == 0x123456789ABC);
  CHECK(page->child(1).value == 3);
  CHECK(Text(page->key(1)) == "middle");
}

TEST_CASE("NodeTable rejects bounds that do not fit the page", "[format]") {
  const PageImage good = ThreeNodes(kVersion1);
  PageImage image = good;
  CHECK(Refusal(image.Set<uint16_t>(good.lower_at(), 14)) ==
        "page 7 (leaf): free-space bounds 14 and " +
            std::to_string(good.Get<uint16_t>(good.upper_at())) + " do not fit 4096 bytes");
  image = good;
  CHECK(Refusal(image.Set<uint16_t>(good.lower_at(), 16)) == "page 7 (leaf): holds no node");
  image = good;
  CHECK(Refusal(image.Set<uint16_t>(good.upper_at(), 5000)) ==
        "page 7 (leaf): free-space bounds 22 and 5000 do not fit 4096 bytes");
}

TEST_CASE("NodeTable rejects an entry offset past the page end", "[format]") {
  PageImage image = ThreeNodes(kVersion1);
  const auto upper = std::to_string(image.Get<uint16_t>(image.upper_at()));
  CHECK(Refusal(image.Set<uint16_t>(image.slot_at(1), 4096)) ==
        "page 7 (leaf): node 1 at offset 4096 lies outside [" + upper + ", 4096)");
}

TEST_CASE("NodeTable rejects two slots for one node", "[format]") {
  PageImage image = ThreeNodes(kVersion1);
  const auto lost = std::to_string(image.node_at(2));
  image.Set<uint16_t>(image.slot_at(2), image.Get<uint16_t>(image.slot_at(0)));
  CHECK(Refusal(image) == "page 7 (leaf): no slot for the node at offset " + lost);
}

TEST_CASE("NodeTable rejects a node of the wrong size", "[format]") {
  for (const PageFormat format : {kVersion1, kVersion3}) {
    for (const size_t field : {size_t{0}, size_t{2}, size_t{6}}) {
      for (size_t node = 0; node < 3; ++node) {
        INFO("field at " << field << " of node " << node);
        PageImage image = ThreeNodes(format);
        const size_t at = image.node_at(node) + field;
        image.Set<uint16_t>(at, static_cast<uint16_t>(image.Get<uint16_t>(at) + 2));
        CHECK(Refusal(image) != "accepted");
      }
    }
  }
}

TEST_CASE("NodeTable rejects invalid node flags", "[format]") {
  for (const uint16_t flags :
       {uint16_t{3}, uint16_t{5}, uint16_t{7}, uint16_t{8}, uint16_t{0x100}}) {
    PageImage image = ThreeNodes(kVersion1);
    image.Set<uint16_t>(image.node_at(2) + 4, flags);
    CHECK(Refusal(image) == "page 7 (leaf): the node at offset " +
                                std::to_string(image.node_at(2)) + " has impossible flags");
  }
}

}  // namespace
}  // namespace lmdbio::test
