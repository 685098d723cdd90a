// lmdbio/order/keyed_permutation.h - a random-looking order of [0, n) that is kept nowhere.
//
// A generalised Feistel network over pairs (left, right) with left < a, right < b and a * b >= n:
// each round adds a keyed hash of one half to the other, modulo its range. Values from n on, which
// are fewer than the square root of n, go round again. So any element is computed by itself, and
// back, in constant memory.
//
// What a key gives is frozen: streams that were saved go on with it (tests/order holds vectors).
//
// After Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002), section 5, and, for the
// mixing function, Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014).
// Source: docs/order.md "The sequence".
#ifndef LMDBIO_ORDER_KEYED_PERMUTATION_H_
#define LMDBIO_ORDER_KEYED_PERMUTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace lmdbio::order {

// SplitMix64's finaliser: a bijection of 64-bit numbers that leaves no pattern.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A key from a key and a number; other numbers give unrelated keys.
constexpr uint64_t DeriveKey(uint64_t key, uint64_t number) {
  return MixBits(MixBits(key + 0x9e3779b97f4a7c15) + (number + 1) * 0x9e3779b97f4a7c15);
}

// Threads: const; any number of readers.
class KeyedPermutation {
 public:
  // Requires: n > 0
  KeyedPermutation(uint64_t n, uint64_t key);

  uint64_t size() const { return n_; }

  // Where element i goes, and which element goes to `place`.
  // Requires: below size()
  // Cost: some 40 ns
  uint64_t operator()(uint64_t i) const { return Go(i, key_); }
  uint64_t Inverse(uint64_t place) const { return GoBack(place, key_); }

  // The same of another permutation of the same size, at no cost of its own.
  // tweak  any number; others give unrelated permutations
  uint64_t Tweaked(uint64_t tweak, uint64_t i) const { return Go(i, DeriveKey(key_, tweak)); }
  uint64_t TweakedInverse(uint64_t tweak, uint64_t place) const {
    return GoBack(place, DeriveKey(key_, tweak));
  }

 private:
  static constexpr int kRoundPairs = 4;
  // Added to the key, round by round.
  static constexpr std::array<uint64_t, 2 * kRoundPairs> kRoundKeys = {
      0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89,
      0x452821e638d01377, 0xbe5466cf34e90c6c, 0xc0ac29b7c97c50dd, 0x3f84d5b5b5470917};

  __extension__ using Wide = unsigned __int128;

  // A number below `range`, of a hash.
  static uint64_t Below(uint64_t hash, uint64_t range) {
    return static_cast<uint64_t>((static_cast<Wide>(hash) * range) >> 64);
  }
  static uint64_t Add(uint64_t x, uint64_t y, uint64_t range) {
    return x >= range - y ? x - (range - y) : x + y;
  }
  static uint64_t Subtract(uint64_t x, uint64_t y, uint64_t range) {
    return x >= y ? x - y : x + (range - y);
  }

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

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_KEYED_PERMUTATION_H_
