#include "lmdbio/file/format/page_header.h"

#include "tests/file/format/page_image.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

using file::DataVersion;
using file::PageFormat;
using file::PageKind;

constexpr PageFormat kFormat(DataVersion::k1, 4096);

TEST_CASE("ParsePageHeader accepts the flags of the five page kinds only", "[format]") {
  for (uint32_t flags = 0; flags < 0x10000; ++flags) {
    const PageImage image(kFormat, 7, static_cast<uint16_t>(flags));
    const auto header = file::ParsePageHeader(kFormat, image.bytes(), PageNo{7});
    const bool known = flags == 1 || flags == 2 || flags == 4 || flags == 8 || flags == 0x22;
    REQUIRE(header.has_value() == known);
  }
}

TEST_CASE("ParsePageHeader rejects another page's bytes", "[format]") {
  const PageImage image(kFormat, 7, PageImage::kLeaf);
  const auto header = file::ParsePageHeader(kFormat, image.bytes(), PageNo{8});
  REQUIRE_FALSE(header.has_value());
  CHECK(header.error().message() == "page 8: carries the number of page 7");
}

TEST_CASE("ParsePageHeader reads no byte beyond a short page", "[format]") {
  const PageImage image(kFormat, 7, PageImage::kLeaf);
  for (size_t length = 0; length < 16; ++length) {
    const std::vector<std::byte> cut(image.bytes().begin(),
                                     image.bytes().begin() + static_cast<std::ptrdiff_t>(length));
    CHECK_FALSE(file::ParsePageHeader(kFormat, cut, PageNo{7}).has_value());
  }
}

TEST_CASE("ParsePageHeader reads the transaction of version 3", "[format]") {
  const PageFormat format(DataVersion::k3, 4096);
  PageImage image(format, 7, PageImage::kLeaf);
  image.Set<uint64_t>(8, 99);
  CHECK(file::ParsePageHeader(format, image.bytes(), PageNo{7})->transaction_id == 99);
}

TEST_CASE("ParseOverflowHead accepts only a run that is long enough", "[format]") {
  PageImage image(kFormat, 7, 0x04);
  image.Set<uint32_t>(12, 2);
  const auto parse = [&](uint64_t value_bytes) {
    return file::ParseOverflowHead(kFormat, image.bytes(), PageNo{7}, value_bytes);
  };
  CHECK(parse(1).has_value());  // overwritten in place by a smaller value
  CHECK(parse(2 * 4096 - 16).has_value());
  const auto short_run = parse(2 * 4096 - 15);
  REQUIRE_FALSE(short_run.has_value());
  CHECK(short_run.error().message() == "page 7: an overflow run of 2 pages cannot hold 8177 bytes");
}

TEST_CASE("ParseSubPageHeader ignores the stale page number", "[format]") {
  for (const uint16_t flags : {uint16_t{0x42}, uint16_t{0x52}}) {
    const PageImage image(kFormat, 12345, flags);
    const auto header = file::ParseSubPageHeader(kFormat, image.bytes(), PageNo{7});
    REQUIRE(header.has_value());
    CHECK(header->kind == PageKind::kLeaf);
  }
  const PageImage leaf(kFormat, 7, PageImage::kLeaf);
  CHECK_FALSE(file::ParseSubPageHeader(kFormat, leaf.bytes(), PageNo{7}).has_value());
}

}  // namespace
}  // namespace lmdbio::test
