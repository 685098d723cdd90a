// Oracle: the test vectors of xxHash itself (tests/sanity_test_vectors.h).
#include "lmdbio/base/digest.h"

#include <cstdint>
#include <string>

#include "tests/support/catch.h"

namespace lmdbio {
namespace {

struct Vector {
  size_t length_bytes;
  uint64_t seed;
  uint64_t digest;
};

constexpr uint64_t kSeed = 0x9E3779B185EBCA8D;

constexpr Vector kVectors[] = {
    {0, 0, 0x2D06800538D394C2},     {0, kSeed, 0xA8A6B918B2F0364A}, {1, 0, 0xC44BDFF4074EECDB},
    {1, kSeed, 0x032BE332DD766EF8}, {6, 0, 0x27B56A84CD2D7325},     {6, kSeed, 0x84589C116AB59AB9},
    {12, 0, 0xA713DAF0DFBB77E7},    {24, 0, 0xA3FE70BF9D3510EB},    {48, 0, 0x397DA259ECBA1F11},
    {80, 0, 0xBCDEFBBB2C47C90A},    {195, 0, 0xCD94217EE362EC3A},   {2240, 0, 0x6E73A90539CF2948},
};

// The input bytes of the vectors.
std::string SanityBytes(size_t length_bytes) {
  std::string bytes;
  uint64_t generator = 2654435761;
  for (size_t i = 0; i < length_bytes; ++i) {
    bytes.push_back(static_cast<char>(generator >> 56));
    generator *= 11400714785074694797U;
  }
  return bytes;
}

TEST_CASE("TextDigest is XXH3 in every build", "[base][digest]") {
  for (const auto& [length_bytes, seed, digest] : kVectors) {
    CAPTURE(length_bytes, seed);
    CHECK(TextDigest(SanityBytes(length_bytes), seed) == digest);
  }
}

}  // namespace
}  // namespace lmdbio
