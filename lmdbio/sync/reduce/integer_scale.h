// lmdbio/sync/reduce/integer_scale.h - the exact product of an integer and a float64, truncated
// towards zero and limited to the range of the integer's type.
#ifndef LMDBIO_SYNC_REDUCE_INTEGER_SCALE_H_
#define LMDBIO_SYNC_REDUCE_INTEGER_SCALE_H_

#include <cstdint>
#include <type_traits>

#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::sync {

// The absolute value of a finite number as mantissa * 2^exponent, and its sign.
struct ScaleParts {
  uint64_t mantissa = 0;  // < 2^53
  int32_t exponent = 0;
  bool is_negative = false;
};

// scale  finite
ScaleParts ScalePartsOf(double scale);

// value * mantissa * 2^exponent, truncated towards zero, at most 2^64 - 1. The product of the two
// integers has less than 117 bits, so it is exact in 128 bits.
LMDBIO_HOST_DEVICE uint64_t CutProduct(uint64_t value, const ScaleParts& factor) {
  __extension__ using Wide = unsigned __int128;
  constexpr uint64_t kMax = ~uint64_t{0};
  Wide product = Wide{value} * factor.mantissa;  // < 2^117
  // The product has fewer than 128 bits, and a shift by 128 or more is undefined.
  if (factor.exponent <= -128) return 0;
  if (factor.exponent < 0) {
    product >>= -factor.exponent;
  } else if (product != 0) {
    if (factor.exponent >= 64) return kMax;
    // Bits that the shift to the left would move beyond 64 make the product too large.
    if (product >> (64 - factor.exponent) != 0) return kMax;
    product <<= factor.exponent;
  }
  return product > kMax ? kMax : static_cast<uint64_t>(product);
}

// Computes with the magnitude, because the sign of the result is known at once. The magnitude of
// the smallest integer is one more than that of the largest, and fits the unsigned type.
template <typename T>
LMDBIO_HOST_DEVICE T ScaledInteger(T value, const ScaleParts& factor) {
  // A GPU cannot call the functions of std::numeric_limits.
  constexpr auto kLargest = static_cast<T>(static_cast<std::make_unsigned_t<T>>(-1) >> 1);
  constexpr auto kLeast = static_cast<T>(-kLargest - 1);
  const bool is_negative = (value < 0) != factor.is_negative;
  const auto bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  const uint64_t size = CutProduct(value < 0 ? 0 - bits : bits, factor);
  const bool is_too_large = size > static_cast<uint64_t>(kLargest);
  if (!is_negative) return is_too_large ? kLargest : static_cast<T>(size);
  return is_too_large ? kLeast : static_cast<T>(-static_cast<int64_t>(size));
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_INTEGER_SCALE_H_
