// The kernel that gathers values, run by the host. Oracle: memcpy.

#include "lmdbio/kernels/gather_body.h"

#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/kernel_bodies.h"
#include "tests/support/catch.h"

namespace lmdbio::kernels {
namespace {

using test::PlacedBytes;
using test::Random;

TEST_CASE("Pieces are copied, and filled up with zeros", "[gather_body]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const size_t piece_count = random.Below(40);
    std::vector<PlacedBytes> values;
    std::vector<PlacedBytes> rows;
    std::vector<GatherPiece> pieces;
    for (size_t i = 0; i < piece_count; ++i) {
      const size_t copy_bytes = random.Below(5) == 0 ? 0 : random.Below(3000);
      const size_t fill_bytes = random.Below(2) == 0 ? 0 : random.Below(300);
      values.emplace_back(random.Below(16), copy_bytes, PlacedBytes::Edges::kAllocation);
      rows.emplace_back(random.Below(16), copy_bytes + fill_bytes, PlacedBytes::Edges::kGuards);
      const std::string bytes = random.BytesOf(copy_bytes);
      std::memcpy(values.back().data(), bytes.data(), copy_bytes);
      pieces.push_back({.from = values.back().span().begin.value,
                        .to = rows.back().span().begin.value,
                        .copy_bytes = static_cast<uint32_t>(copy_bytes),
                        .fill_bytes = static_cast<uint32_t>(fill_bytes)});
    }
    const GatherTable table = {.pieces = reinterpret_cast<uint64_t>(pieces.data()),
                               .piece_count = piece_count};
    test::RunBody("lmdbio_gather", table, static_cast<uint32_t>(random.Between(1, 3)),
                  static_cast<uint32_t>(32 * random.Between(1, 3)));
    for (size_t i = 0; i < piece_count; ++i) {
      std::vector<std::byte> expected(rows[i].size_bytes());
      if (values[i].size_bytes() > 0) {
        std::memcpy(expected.data(), values[i].data(), values[i].size_bytes());
      }
      const std::vector<std::byte> found(rows[i].data(), rows[i].data() + rows[i].size_bytes());
      CHECK(found == expected);
      CHECK(rows[i].AreEdgesWhole());
    }
  }
}

}  // namespace
}  // namespace lmdbio::kernels
