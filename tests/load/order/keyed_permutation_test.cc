// Goal: every key gives a permutation that never changes and is statistically random.
#include "lmdbio/load/order/keyed_permutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

TEST_CASE("The permutation is a bijection, and Inverse inverts it", "[order][permutation]") {
  for (uint64_t n = 1; n <= 400; ++n) {
    for (const uint64_t key : {0ULL, 1ULL, 0xffffffffffffffffULL}) {
      const KeyedPermutation permutation(n, key);
      CAPTURE(n, key);
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t place = permutation(i);
        REQUIRE(place < n);
        REQUIRE_FALSE(seen[place]);
        seen[place] = true;
        REQUIRE(permutation.Inverse(place) == i);
        REQUIRE(permutation.TweakedInverse(i, permutation.Tweaked(i, place)) == place);
      }
    }
  }
}

TEST_CASE("Large ranges are permuted too", "[order][permutation]") {
  test::Random random(7);
  for (const uint64_t n : {uint64_t{65'536}, uint64_t{65'537}, uint64_t{1'000'003},
                           (uint64_t{1} << 40) + 1, (uint64_t{1} << 48) - 1, uint64_t{1} << 61}) {
    const KeyedPermutation permutation(n, random.Next());
    for (int i = 0; i < 2000; ++i) {
      const uint64_t at = random.Below(n);
      const uint64_t place = permutation(at);
      REQUIRE(place < n);
      REQUIRE(permutation.Inverse(place) == at);
    }
  }
}

// Saved streams depend on these vectors. A change here breaks every saved state.
TEST_CASE("The permutation of a key never changes", "[order][permutation]") {
  struct Vector {
    uint64_t n, key;
    std::array<uint64_t, 8> first;
  };
  constexpr Vector kVectors[] = {
      {1, 0, {0}},
      {2, 1, {0, 1}},
      {97, 42, {77, 75, 88, 3, 61, 78, 89, 29}},
      {1000, 7, {316, 43, 633, 92, 851, 552, 505, 983}},
      {65536, 16045690984503111693ULL, {54337, 54770, 32043, 40569, 58584, 47921, 37311, 48683}},
      {1797, 3, {29, 277, 1033, 654, 1704, 468, 1777, 142}},
      {300000, 20180512, {253619, 113156, 149289, 55181, 33548, 64218, 162884, 354}},
      {100000000, 5, {1040785, 2684989, 2189292, 10336917, 61615370, 61656785, 91418761, 18686145}},
      {1000000000000,
       6,
       {530531399983, 813007050125, 993650567765, 537412855688, 511612546624, 523810138320,
        609431352096, 270082179696}},
  };
  for (const Vector& vector : kVectors) {
    const KeyedPermutation permutation(vector.n, vector.key);
    for (uint64_t i = 0; i < std::min<uint64_t>(8, vector.n); ++i) {
      CAPTURE(vector.n, vector.key, i);
      CHECK(permutation(i) == vector.first[i]);
    }
  }
  CHECK(DeriveKey(0, 0) == 12035550249420947055ULL);
  CHECK(DeriveKey(1, 2) == 834844254806117752ULL);
  CHECK(KeyedPermutation(1000, 5).Tweaked(9, 17) == 601);
}

// Chi-square over all orders of a few elements: 4! = 24 cells have 23 degrees of freedom; a value
// above 49.7 occurs once in a thousand.
TEST_CASE("All orders of four elements are equally likely", "[order][permutation]") {
  constexpr int kKeys = 48'000;
  std::map<std::array<uint64_t, 4>, int> seen;
  for (int key = 0; key < kKeys; ++key) {
    const KeyedPermutation permutation(4, DeriveKey(3, static_cast<uint64_t>(key)));
    ++seen[{permutation(0), permutation(1), permutation(2), permutation(3)}];
  }
  double chi_square = 0;
  for (const auto& [order, count] : seen) {
    chi_square += (count - kKeys / 24.0) * (count - kKeys / 24.0) / (kKeys / 24.0);
  }
  CAPTURE(chi_square);
  CHECK(seen.size() == 24);
  CHECK(chi_square < 49.7);
}

// The places of an element and of its neighbour must be independent. Pairs of sixteenths of the
// range are counted: 255 degrees of freedom; a value above 330 occurs once in a thousand.
TEST_CASE("Neighbours go to unrelated places", "[order][permutation]") {
  for (const uint64_t n : {uint64_t{4'096}, uint64_t{300'000}, uint64_t{100'000'000}}) {
    for (const uint64_t key : {1ULL, 2ULL, 3ULL}) {
      const KeyedPermutation permutation(n, key);
      const uint64_t pairs = std::min<uint64_t>(n - 1, 200'000);
      std::array<double, 256> cells{};
      for (uint64_t i = 0; i < pairs; ++i) {
        ++cells[permutation(i) * 16 / n * 16 + permutation(i + 1) * 16 / n];
      }
      double chi_square = 0;
      const double expected = static_cast<double>(pairs) / 256;
      for (const double cell : cells)
        chi_square += (cell - expected) * (cell - expected) / expected;
      CAPTURE(n, key, chi_square);
      CHECK(chi_square < 330);
    }
  }
}

// A random order has one fixed point on average.
TEST_CASE("The permutation has one fixed point on average", "[order][permutation]") {
  constexpr int kKeys = 4000;
  double stay = 0;
  for (int key = 0; key < kKeys; ++key) {
    const KeyedPermutation permutation(97, DeriveKey(11, static_cast<uint64_t>(key)));
    for (uint64_t i = 0; i < 97; ++i) stay += permutation(i) == i ? 1 : 0;
  }
  // The variance of one order is 1, so the mean of 4,000 has a standard deviation of 0.016.
  CHECK(std::abs(stay / kKeys - 1) < 0.065);
}

}  // namespace
}  // namespace lmdbio::load
