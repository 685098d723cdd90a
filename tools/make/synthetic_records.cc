#include "tools/make/synthetic_records.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>

namespace lmdbio::tools {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio, odd
constexpr uint64_t kSizeStream = 0x73697a6573;    // keeps sizes independent of contents

// The finaliser of splitmix64: every input bit changes every output bit with probability one half.
// Source: S. Vigna, splitmix64 (public domain), after Steele, Lea and Flood, OOPSLA 2014.
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// The start of an independent stream of random numbers. Number k is Mix(state + k * kGolden).
uint64_t StreamState(uint64_t seed, uint64_t stream) {
  return Mix(Mix(seed + kGolden) ^ (stream * kGolden));
}

// A number in (0, 1], so that its logarithm is finite.
double ToUnit(uint64_t bits) { return (static_cast<double>(bits >> 11) + 1.0) * 0x1.0p-53; }

// Box-Muller transform.
double ToNormal(uint64_t first_bits, uint64_t second_bits) {
  return std::sqrt(-2.0 * std::log(ToUnit(first_bits))) *
         std::cos(2.0 * std::numbers::pi * ToUnit(second_bits));
}

// Maps 64 random bits to [0, bound) by the high half of a product; bound <= 2^32 keeps the bias
// below 2^-32.
uint64_t ToBelow(uint64_t bits, uint64_t bound) { return ((bits >> 32) * bound) >> 32; }

uint64_t ToLittleEndian(uint64_t value) {
  if constexpr (std::endian::native == std::endian::little) return value;
  uint64_t reversed = 0;
  for (int i = 0; i < 8; ++i) reversed = (reversed << 8) | ((value >> (8 * i)) & 0xff);
  return reversed;
}

}  // namespace

uint64_t SyntheticValueBytes(const ValueSizes& sizes, uint64_t seed, uint64_t record) {
  if (sizes.kind == ValueSizes::SizeDistribution::kFixed) return sizes.min_bytes;
  const uint64_t state = StreamState(seed ^ kSizeStream, record);
  if (sizes.kind == ValueSizes::SizeDistribution::kUniform) {
    return sizes.min_bytes + ToBelow(Mix(state), sizes.max_bytes - sizes.min_bytes + 1);
  }
  const double normal = ToNormal(Mix(state), Mix(state + kGolden));
  constexpr double kMax = std::numeric_limits<uint32_t>::max();
  return static_cast<uint64_t>(
      std::clamp(sizes.median_bytes * std::exp(sizes.sigma * normal), 1.0, kMax));
}

double MeanValueBytes(const ValueSizes& sizes) {
  switch (sizes.kind) {
    case ValueSizes::SizeDistribution::kFixed:
      return static_cast<double>(sizes.min_bytes);
    case ValueSizes::SizeDistribution::kUniform:
      return (static_cast<double>(sizes.min_bytes) + static_cast<double>(sizes.max_bytes)) / 2;
    // The mean of a log-normal distribution is its median times exp(sigma^2 / 2). The limits of
    // sizes are ignored.
    case ValueSizes::SizeDistribution::kLogNormal:
      return sizes.median_bytes * std::exp(sizes.sigma * sizes.sigma / 2);
  }
  return 0.0;
}

void FillSyntheticValue(uint64_t seed, uint64_t record, MutableBytes value) {
  constexpr size_t kWordBytes = sizeof(uint64_t);
  uint64_t state = StreamState(seed, record);
  uint64_t word = record;
  for (size_t offset = 0; offset < value.size(); offset += kWordBytes) {
    const uint64_t stored = ToLittleEndian(word);
    if (value.size() - offset >= kWordBytes) [[likely]] {
      std::memcpy(value.data() + offset, &stored, kWordBytes);  // a constant size: one store
    } else {
      std::memcpy(value.data() + offset, &stored, value.size() - offset);
    }
    state += kGolden;
    word = Mix(state);
  }
}

Permutation::Permutation(uint64_t seed, uint64_t count)
    : seed_(seed), count_(count), half_bits_(1) {
  // Two equal halves make the domain a power of four, the smallest one that holds `count`.
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < count) ++half_bits_;
}

uint64_t Permutation::Encipher(uint64_t block) const {
  constexpr uint64_t kRounds = 4;  // Luby and Rackoff: four make a permutation look random
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = block >> half_bits_;
  uint64_t right = block & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    // Each round is undone by the same exclusive or, so the network is a bijection, whatever Mix
    // returns.
    const uint64_t mixed = StreamState(seed_ + round, right) & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t position) const {
  uint64_t block = Encipher(position);
  // The cycle of a bijection returns to `position`, which is below count_. So the loop ends, and
  // two positions never meet.
  while (block >= count_) block = Encipher(block);
  return block;
}

}  // namespace lmdbio::tools
