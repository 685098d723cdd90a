// lmdbio/load/order/keyed_permutation.h - a pseudo-random order of [0, n), computed without a
// table.
//
// The permutation is a generalised Feistel network over pairs (left, right) with left < a, right <
// b and a * b >= n. Each round adds a keyed hash of one half to the other half, modulo the range of
// that half. A result >= n goes through the network again ("cycle walking"); fewer than sqrt(n)
// values of a * b are >= n, so this is rare. Both directions are computed for a single element, in
// constant memory.
//
// The order of a key never changes, because saved streams continue with it (tests/load/order holds
// vectors).
//
// After Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002), section 5, and, for the
// mixing function, Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014).
// Source: docs/order.md "The sequence".
#ifndef LMDBIO_LOAD_ORDER_KEYED_PERMUTATION_H_
#define LMDBIO_LOAD_ORDER_KEYED_PERMUTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace lmdbio::load {

// The finaliser of SplitMix64: a bijection of 64-bit numbers with well mixed bits.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Derives a key from a key and a number. Different numbers give unrelated keys.
constexpr uint64_t DeriveKey(uint64_t key, uint64_t number) {
  return MixBits(MixBits(key + 0x9e3779b97f4a7c15) + (number + 1) * 0x9e3779b97f4a7c15);
}

// Threads: const; any number of readers.
class KeyedPermutation {
 public:
  // Requires: n > 0
  KeyedPermutation(uint64_t n, uint64_t key);

  uint64_t size() const { return n_; }

  // The place of element i, and the element at `place`.
  // Requires: i and place are below size()
  // Cost:     about 40 ns
  uint64_t operator()(uint64_t i) const { return Go(i, key_); }
  uint64_t Inverse(uint64_t place) const { return GoBack(place, key_); }

  // The same for another permutation of the same size, without constructing it.
  // tweak  any number; different numbers give unrelated permutations
  uint64_t Tweaked(uint64_t tweak, uint64_t i) const { return Go(i, DeriveKey(key_, tweak)); }
  uint64_t TweakedInverse(uint64_t tweak, uint64_t place) const {
    return GoBack(place, DeriveKey(key_, tweak));
  }

 private:
  static constexpr size_t kRoundPairs = 4;
  // Added to the key, round by round.
  static constexpr std::array<uint64_t, 2 * kRoundPairs> kRoundKeys = {
      0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89,
      0x452821e638d01377, 0xbe5466cf34e90c6c, 0xc0ac29b7c97c50dd, 0x3f84d5b5b5470917};

  __extension__ using Wide = unsigned __int128;

  // Maps a hash to a number below `range`, by the high half of their product.
  static uint64_t Below(uint64_t hash, uint64_t range) {
    return static_cast<uint64_t>((static_cast<Wide>(hash) * range) >> 64);
  }
  static uint64_t Add(uint64_t x, uint64_t y, uint64_t range) {
    return x >= range - y ? x - (range - y) : x + y;
  }
  static uint64_t Subtract(uint64_t x, uint64_t y, uint64_t range) {
    return x >= y ? x - y : x + (range - y);
  }

  // Adding to one half a function of the other half is invertible, so each round is a bijection of
  // the pairs. GoBack subtracts the same terms in the reverse order of rounds.
  uint64_t Go(uint64_t i, uint64_t key) const {
    do {
      uint64_t left = i / right_range_;
      uint64_t right = i - left * right_range_;
      for (size_t round = 0; round < kRoundKeys.size(); round += 2) {
        left =
            Add(left, Below(MixBits(right + (key ^ kRoundKeys[round])), left_range_), left_range_);
        right = Add(right, Below(MixBits(left + (key ^ kRoundKeys[round + 1])), right_range_),
                    right_range_);
      }
      i = left * right_range_ + right;
    } while (i >= n_);
    return i;
  }

  uint64_t GoBack(uint64_t i, uint64_t key) const {
    do {
      uint64_t left = i / right_range_;
      uint64_t right = i - left * right_range_;
      for (size_t round = kRoundKeys.size(); round > 0; round -= 2) {
        right = Subtract(right, Below(MixBits(left + (key ^ kRoundKeys[round - 1])), right_range_),
                         right_range_);
        left = Subtract(left, Below(MixBits(right + (key ^ kRoundKeys[round - 2])), left_range_),
                        left_range_);
      }
      i = left * right_range_ + right;
    } while (i >= n_);
    return i;
  }

  uint64_t n_;
  uint64_t left_range_;   // a
  uint64_t right_range_;  // b
  uint64_t key_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_ORDER_KEYED_PERMUTATION_H_
