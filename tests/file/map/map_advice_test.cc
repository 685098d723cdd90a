#include "lmdbio/file/map/map_advice.h"

#include <random>

#include "tests/support/catch.h"

namespace lmdbio::file {
namespace {

TEST_CASE("AdvisedExtent begins at a page of the memory and ends in the map", "[io]") {
  const uint64_t page_bytes = GENERATE(4 << 10, 16 << 10, 64 << 10);
  CAPTURE(page_bytes);
  constexpr uint64_t kMapBytes = 1'000'003;
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    const Extent extent{random() % kMapBytes, 1 + random() % kMapBytes};
    CAPTURE(extent.offset, extent.length_bytes);
    const Extent advised = AdvisedExtent(kMapBytes, extent, page_bytes);
    CHECK(advised.offset % page_bytes == 0);
    CHECK(advised.offset <= extent.offset);
    CHECK(extent.offset - advised.offset < page_bytes);
    CHECK(advised.offset + advised.length_bytes ==
          std::min(kMapBytes, extent.offset + extent.length_bytes));
  }
  CHECK(AdvisedExtent(kMapBytes, {kMapBytes + 7, 9}, page_bytes).length_bytes == 0);
  CHECK(AdvisedExtent(kMapBytes, {5, 0}, page_bytes).length_bytes == 0);
  CHECK(AdvisedExtent(0, {0, 1}, page_bytes).length_bytes == 0);
  const Extent all = AdvisedExtent(kMapBytes, {1, ~uint64_t{0}}, page_bytes);
  CHECK(all.offset + all.length_bytes == kMapBytes);
}

}  // namespace
}  // namespace lmdbio::file
