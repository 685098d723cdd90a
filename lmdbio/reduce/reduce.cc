#include "lmdbio/reduce/reduce.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lmdbio/base/check.h"
#include "lmdbio/reduce/reduce_dispatch.h"

namespace lmdbio::reduce {
namespace {

__extension__ using Wide = unsigned __int128;

const ReduceKernels& Kernels() {
  static const ReduceKernels& kernels =
      BetterKernels() != nullptr ? *BetterKernels() : PortableKernels();
  return kernels;
}

// A finite number as mantissa * 2^exponent, with its sign apart.
struct Parts {
  uint64_t mantissa = 0;  // < 2^53
  int exponent = 0;
  bool is_negative = false;
};

Parts PartsOf(double number) {
  Parts parts;
  const double fraction = std::frexp(std::fabs(number), &parts.exponent);
  parts.mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  parts.exponent -= 53;
  parts.is_negative = std::signbit(number);
  return parts;
}

// |value| * mantissa * 2^exponent, cut towards zero, but no more than 2^64 - 1.
uint64_t CutProduct(uint64_t value, const Parts& factor) {
  Wide product = Wide{value} * factor.mantissa;  // < 2^117
  if (factor.exponent <= -128) return 0;
  if (factor.exponent < 0) {
    product >>= -factor.exponent;
  } else if (product != 0) {
    if (factor.exponent >= 64) return std::numeric_limits<uint64_t>::max();
    if (product >> (64 - factor.exponent) != 0) return std::numeric_limits<uint64_t>::max();
    product <<= factor.exponent;
  }
  constexpr auto kMax = std::numeric_limits<uint64_t>::max();
  return product > kMax ? kMax : static_cast<uint64_t>(product);
}

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
void ScaleIntegers(double factor, std::byte* values, size_t count) {
  LMDBIO_CHECK(std::isfinite(factor));
  const Parts parts = PartsOf(factor);
  for (size_t i = 0; i < count; ++i) {
    T value = 0;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    value = ScaledInteger(value, parts);
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void Reduce(DataType type, ReduceOp op, std::byte* into, const std::byte* from, size_t count) {
  const std::array<const std::byte*, 2> sources{into, from};
  ReduceAll(type, op, into, sources, count);
}

void ReduceAll(DataType type, ReduceOp op, std::byte* into,
               std::span<const std::byte* const> sources, size_t count) {
  LMDBIO_CHECK(IsDataType(static_cast<uint8_t>(type)) && IsReduceOp(static_cast<uint8_t>(op)));
  LMDBIO_CHECK(!sources.empty());
  if (count == 0) return;
  const ReduceRow& row = Kernels().reduce[static_cast<size_t>(type) - 1];
  row.by_op[static_cast<size_t>(op) - 1](into, sources.data(), sources.size(), count);
}

void Scale(DataType type, double factor, std::byte* values, size_t count) {
  LMDBIO_CHECK(IsDataType(static_cast<uint8_t>(type)));
  if (count == 0 || factor == 1) return;
  switch (type) {
    case DataType::kInt32:
      return ScaleIntegers<int32_t>(factor, values, count);
    case DataType::kInt64:
      return ScaleIntegers<int64_t>(factor, values, count);
    default:
      return Kernels().scale[static_cast<size_t>(type) - 1](values, count, factor);
  }
}

}  // namespace lmdbio::reduce
