#include "lmdbio/sync/reduce/reduce.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/reduce/reduce_dispatch.h"

namespace lmdbio::sync {
namespace {

__extension__ using Wide = unsigned __int128;

// Chosen once in the life of the process. Ranks on different processors may choose different
// kernels; the bits are the same (reduce_kernels.h).
const ReduceKernels& Kernels() {
  static const ReduceKernels& kernels =
      BetterKernels() != nullptr ? *BetterKernels() : PortableKernels();
  return kernels;
}

// The absolute value of a finite number as mantissa * 2^exponent, and its sign.
struct Parts {
  uint64_t mantissa = 0;  // < 2^53
  int exponent = 0;
  bool is_negative = false;
};

Parts PartsOf(double number) {
  Parts parts;
  // `fraction` is 0 or in [0.5, 1), with at most 53 bits. So its product with 2^53 is an integer
  // and exact.
  const double fraction = std::frexp(std::fabs(number), &parts.exponent);
  parts.mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  parts.exponent -= 53;
  parts.is_negative = std::signbit(number);
  return parts;
}

// |value| * mantissa * 2^exponent, truncated towards zero, at most 2^64 - 1. The product of the two
// integers has less than 117 bits, so it is exact in 128 bits.
uint64_t CutProduct(uint64_t value, const Parts& factor) {
  Wide product = Wide{value} * factor.mantissa;  // < 2^117
  // The product has fewer than 128 bits, and a shift by 128 or more is undefined.
  if (factor.exponent <= -128) return 0;
  if (factor.exponent < 0) {
    product >>= -factor.exponent;
  } else if (product != 0) {
    if (factor.exponent >= 64) return std::numeric_limits<uint64_t>::max();
    // Bits that the shift to the left would move beyond 64 make the product too large.
    if (product >> (64 - factor.exponent) != 0) return std::numeric_limits<uint64_t>::max();
    product <<= factor.exponent;
  }
  constexpr auto kMax = std::numeric_limits<uint64_t>::max();
  return product > kMax ? kMax : static_cast<uint64_t>(product);
}

// Computes with the magnitude, because the sign of the result is known at once. The magnitude of
// the smallest integer is one more than that of the largest, and fits the unsigned type.
template <typename T>
T ScaledInteger(T value, const Parts& factor) {
  const bool is_negative = (value < 0) != factor.is_negative;
  const auto bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  const uint64_t size = CutProduct(value < 0 ? 0 - bits : bits, factor);
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (!is_negative) return size > kMax ? std::numeric_limits<T>::max() : static_cast<T>(size);
  if (size > kMax) return std::numeric_limits<T>::min();
  return static_cast<T>(-static_cast<int64_t>(size));
}

template <typename T>
void ScaleIntegers(double scale, std::byte* values, size_t count) {
  LMDBIO_CHECK(std::isfinite(scale));
  const Parts parts = PartsOf(scale);
  for (size_t i = 0; i < count; ++i) {
    T value = 0;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    value = ScaledInteger(value, parts);
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void Reduce(DataType type, const Reduction& reduction, std::byte* into, const std::byte* from,
            size_t count) {
  const std::array<const std::byte*, 2> sources{into, from};
  ReduceAll(type, reduction, into, sources, count);
}

void ReduceAll(DataType type, const Reduction& reduction, std::byte* into,
               std::span<const std::byte* const> sources, size_t count) {
  LMDBIO_CHECK(IsDataType(static_cast<uint8_t>(type)));
  LMDBIO_CHECK(IsReduceOp(static_cast<uint8_t>(reduction.op)) && !sources.empty());
  if (count == 0) return;
  const ReduceRow& row = Kernels().reduce[static_cast<size_t>(type) - 1];
  const ReduceAllLoop loop = row.by_op[static_cast<size_t>(reduction.op) - 1];
  loop(into, sources.data(), sources.size(), count, reduction.scale);
  if (reduction.scale == 1) return;
  // Integers take a pass of their own: no vector instruction computes their 128-bit product.
  if (type == DataType::kInt32) ScaleIntegers<int32_t>(reduction.scale, into, count);
  if (type == DataType::kInt64) ScaleIntegers<int64_t>(reduction.scale, into, count);
}

// The sum of one source is the source itself, so the kernels of kSum scale it without a loop of
// their own.
void Scale(DataType type, double scale, std::byte* into, const std::byte* from, size_t count) {
  if (scale != 1) {
    ReduceAll(type, {ReduceOp::kSum, scale}, into, std::span(&from, 1), count);
  } else if (count > 0 && into != from) {
    std::memmove(into, from, count * ElementBytes(type));
  }
}

}  // namespace lmdbio::sync
