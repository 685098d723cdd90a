// Goal: parts of the memory for gradients are apart, and a bucket counts as placed only if a
// reduction over its gaps changes nothing of the program. Oracle: a map of the bytes.
#include "lmdbio/sync/request/gradient_places.h"

#include <string>
#include <vector>

#include "lmdbio/sync/request/fusion.h"
#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;
using test::TensorOf;

constexpr uint64_t kBegin = 0x7F0000000040;

uint64_t PartOf(GradientPlaces& places, uint64_t size_bytes) {
  const auto part = places.Take(size_bytes);
  REQUIRE(part);
  return *part;
}

TEST_CASE("Parts begin at lines, one behind the other, until nothing is left",
          "[gradient_places]") {
  GradientPlaces places(kBegin, 200, "device_gradient_bytes");
  CHECK(places.Take(1) == kBegin);
  CHECK(places.Take(0) == kBegin + 64);
  CHECK(places.Take(64) == kBegin + 64);
  const auto refused = places.Take(73);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
  CHECK_THAT(refused.error().message(),
             ContainsSubstring("73 bytes of gradients: 72 are left of device_gradient_bytes 200"));
  CHECK(places.Take(72) == kBegin + 128);
  CHECK_FALSE(places.Take(1));
  CHECK(places.Take(0) == kBegin + 200);
}

// Requests of `sizes` floats, and their offsets in a fusion buffer.
struct FusedBucket {
  explicit FusedBucket(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) requests.push_back(TensorOf("t", size));
    offsets = PlacesOf(requests).offsets;
  }
  std::vector<Request> requests;
  std::vector<uint64_t> offsets;
};

TEST_CASE("Neighbours in the order of a bucket are placed", "[gradient_places]") {
  GradientPlaces places(kBegin, 1000, "gradient_bytes");
  const uint64_t a = PartOf(places, 100);
  const uint64_t b = PartOf(places, 64);
  const uint64_t c = PartOf(places, 40);
  const FusedBucket bucket({25, 16, 10});
  const auto holds = [&](const std::vector<uint64_t>& addresses) {
    return places.Hold(bucket.requests, addresses, bucket.offsets);
  };
  CHECK(holds({a, b, c}));
  CHECK_FALSE(holds({b, a, c}));
  CHECK_FALSE(holds({a, b, c + 4}));
  CHECK_FALSE(holds({a - 64, b - 64, c - 64}));
  CHECK_FALSE(holds({a + 4, b + 4, c + 4}));
  CHECK_FALSE(holds({kBegin + 1024, kBegin + 1152, kBegin + 1216}));
  // A tensor alone has no neighbour that tells.
  const FusedBucket alone({10});
  CHECK(places.Hold(alone.requests, std::vector{a + 64}, alone.offsets));
  CHECK_FALSE(places.Hold(alone.requests, std::vector{a + 4}, alone.offsets));
}

TEST_CASE("A bucket that ends behind the memory is not placed", "[gradient_places]") {
  GradientPlaces places(kBegin, 100, "gradient_bytes");
  const uint64_t all = PartOf(places, 100);
  for (const int64_t count : {1, 25, 26}) {
    const FusedBucket bucket({count});
    CHECK(places.Hold(bucket.requests, std::vector{all}, bucket.offsets) == (count <= 25));
  }
}

// The map says of each byte whether the program may have a value there.
TEST_CASE("A gap that is reduced along belongs to no part", "[gradient_places]") {
  ForSeeds(2000, [](uint64_t seed) -> std::string {
    Random random(seed);
    GradientPlaces places(kBegin, 4096, "gradient_bytes");
    std::vector<char> is_used(4096, 0);
    std::vector<uint64_t> addresses;
    std::vector<int64_t> counts;
    for (size_t part = 1 + random.Below(4); part > 0; --part) {
      const auto floats = static_cast<int64_t>(1 + random.Below(40));
      const uint64_t begin = PartOf(places, static_cast<uint64_t>(floats) * sizeof(float));
      for (uint64_t i = 0; i < static_cast<uint64_t>(floats) * sizeof(float); ++i) {
        is_used[begin - kBegin + i] = 1;
      }
      // One tensor of a part, or two.
      const int64_t first =
          random.Below(2) == 0
              ? floats
              : 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(floats)));
      addresses.push_back(begin);
      counts.push_back(first);
      const uint64_t next = (static_cast<uint64_t>(first) * sizeof(float) + 63) / 64 * 64;
      const int64_t left = floats - static_cast<int64_t>(next / sizeof(float));
      if (first < floats && left > 0) {
        addresses.push_back(begin + next);
        counts.push_back(left);
      }
    }
    const FusedBucket bucket(counts);
    bool is_free = true;
    for (size_t i = 0; i + 1 < counts.size(); ++i) {
      const uint64_t end = addresses[i] + static_cast<uint64_t>(counts[i]) * sizeof(float);
      const bool are_neighbours = addresses[i + 1] == addresses[0] + bucket.offsets[i + 1];
      is_free = is_free && are_neighbours;
      for (uint64_t at = end; are_neighbours && at < addresses[i + 1]; ++at) {
        is_free = is_free && is_used[at - kBegin] == 0;
      }
    }
    return places.Hold(bucket.requests, addresses, bucket.offsets) == is_free
               ? ""
               : "another answer than the map's";
  });
}

}  // namespace
}  // namespace lmdbio::sync
