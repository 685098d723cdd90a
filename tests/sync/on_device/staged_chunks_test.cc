// Oracle: a map of all bytes.
#include "lmdbio/sync/on_device/staged_chunks.h"

#include <map>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::sync {
namespace {

using test::Random;

TEST_CASE("Each byte of each tensor lies in one chunk, at its place", "[staged_chunks]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<uint64_t> offsets;
    std::vector<uint64_t> sizes;
    uint64_t end = 0;
    for (uint64_t i = random.Between(1, 9); i > 0; --i) {
      offsets.push_back(end);
      sizes.push_back(random.Below(4) == 0 ? 0 : random.Below(400));
      end = (end + sizes.back() + 63) / 64 * 64;
    }
    const uint64_t total = offsets.back() + sizes.back();
    const uint64_t chunk_bytes = 64 * random.Between(1, 5);
    const StagedChunks chunks(offsets, sizes, chunk_bytes);
    CHECK(chunks.count() == (total == 0 ? 1 : (total + chunk_bytes - 1) / chunk_bytes));
    std::map<std::pair<size_t, uint64_t>, uint64_t> places;  // of bytes, in the space of bytes
    for (uint64_t chunk = 0; chunk < chunks.count(); ++chunk) {
      CHECK(chunks.BytesOf(chunk) <= chunk_bytes);
      for (const StagedPart& part : chunks.PartsOf(chunk)) {
        CHECK(part.size_bytes > 0);
        CHECK(part.chunk_offset + part.size_bytes <= chunks.BytesOf(chunk));
        for (uint64_t i = 0; i < part.size_bytes; ++i) {
          const auto [place, is_new] = places.try_emplace(
              {part.tensor, part.tensor_offset + i}, chunk * chunk_bytes + part.chunk_offset + i);
          CHECK(is_new);
        }
      }
    }
    uint64_t bytes = 0;
    for (const uint64_t size : sizes) bytes += size;
    CHECK(places.size() == bytes);
    for (const auto& [byte, place] : places) {
      CHECK(byte.second < sizes[byte.first]);
      CHECK(place == offsets[byte.first] + byte.second);
    }
  }
}

TEST_CASE("Tensors without bytes are one chunk without parts", "[staged_chunks]") {
  const StagedChunks chunks({0, 0}, {0, 0}, 128);
  CHECK(chunks.count() == 1);
  CHECK(chunks.BytesOf(0) == 0);
  CHECK(chunks.PartsOf(0).empty());
}

TEST_CASE("Chunks of more than 4 GiB have exact places", "[staged_chunks]") {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  constexpr uint64_t kChunkBytes = uint64_t{4} << 20;
  const StagedChunks chunks({0, 64, 64 + 6 * kGiB}, {60, 6 * kGiB, 100}, kChunkBytes);
  CHECK(chunks.count() == 6 * kGiB / kChunkBytes + 1);
  CHECK(chunks.PartsOf(0) == std::vector<StagedPart>{{0, 0, 0, 60}, {1, 0, 64, kChunkBytes - 64}});
  CHECK(chunks.PartsOf(1280) == std::vector<StagedPart>{{1, 5 * kGiB - 64, 0, kChunkBytes}});
  CHECK(chunks.BytesOf(chunks.count() - 1) == 164);
  CHECK(chunks.PartsOf(chunks.count() - 1) ==
        std::vector<StagedPart>{{1, 6 * kGiB - 64, 0, 64}, {2, 0, 64, 100}});
}

}  // namespace
}  // namespace lmdbio::sync
