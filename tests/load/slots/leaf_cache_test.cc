#include "lmdbio/load/slots/leaf_cache.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

TEST_CASE("A leaf page is kept until there is no room", "[loader][leaf-cache]") {
  LeafCache cache(3 * 4096);
  const auto page = [](int fill) { return std::vector(4096, static_cast<std::byte>(fill)); };
  for (uint64_t i = 0; i < 4; ++i) {
    const Extent file{i * 8192, 4096};
    CHECK_FALSE(cache.Has(file));
    cache.Keep(file, page(static_cast<int>(i)));
    CHECK(cache.Has(file) == (i < 3));
  }
  // A second Keep of the same extent changes nothing.
  cache.Keep({0, 4096}, page(9));
  for (uint64_t i = 0; i < 3; ++i) {
    const Bytes kept = cache.Get({i * 8192, 4096});
    CHECK(std::ranges::equal(kept, page(static_cast<int>(i))));
  }
  // A longer extent at the same offset is another extent.
  CHECK_FALSE(cache.Has({0, 8192}));
}

}  // namespace
}  // namespace lmdbio::load
