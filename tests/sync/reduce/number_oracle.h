// tests/sync/reduce/number_oracle.h - the arithmetic of lmdbio/sync/reduce once more: one number at
// a time, without vectors, and sharing no code.
#ifndef LMDBIO_TESTS_SYNC_REDUCE_NUMBER_ORACLE_H_
#define LMDBIO_TESTS_SYNC_REDUCE_NUMBER_ORACLE_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::test {

inline constexpr std::array kTypes{sync::DataType::kFloat32, sync::DataType::kFloat64,
                                   sync::DataType::kFloat16, sync::DataType::kBFloat16,
                                   sync::DataType::kInt32,   sync::DataType::kInt64};
inline constexpr std::array kOps{sync::ReduceOp::kSum, sync::ReduceOp::kMin, sync::ReduceOp::kMax,
                                 sync::ReduceOp::kProduct};

// A float of few bits: `mantissa_bits` after the point, the least normal number 2^least_exponent.
struct SmallFloat {
  int mantissa_bits;
  int least_exponent;
  double max;
};
constexpr SmallFloat kHalf{10, -14, 65504.0};
inline const SmallFloat kBrainHalf{7, -126, std::ldexp(255.0, 120)};

inline double Decode(const SmallFloat& kind, uint16_t bits) {
  const int mantissa = bits & ((1 << kind.mantissa_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> kind.mantissa_bits;
  const int exponent_max = 0x7FFF >> kind.mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == exponent_max) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << kind.mantissa_bits);
  const int power = (exponent == 0 ? 1 : exponent) - 1 + kind.least_exponent - kind.mantissa_bits;
  return sign * std::ldexp(whole, power);
}

// To the nearest, ties to even. A NaN becomes 0x7FFF.
inline uint16_t Encode(const SmallFloat& kind, double number) {
  if (std::isnan(number)) return 0x7FFF;
  const auto sign = static_cast<uint16_t>(std::signbit(number) ? 0x8000 : 0);
  const int infinity = (0x7FFF >> kind.mantissa_bits) << kind.mantissa_bits;
  if (std::isinf(number)) return static_cast<uint16_t>(sign | infinity);
  if (number == 0) return sign;
  int exponent = std::ilogb(number);
  if (exponent < kind.least_exponent) exponent = kind.least_exponent;
  const double rounded =
      std::nearbyint(std::ldexp(std::fabs(number), kind.mantissa_bits - exponent));
  if (std::ldexp(rounded, exponent - kind.mantissa_bits) > kind.max) {
    return static_cast<uint16_t>(sign | infinity);
  }
  // Neighbouring numbers have neighbouring bits, also if the exponents differ.
  const int from_least = (exponent - kind.least_exponent) << kind.mantissa_bits;
  return static_cast<uint16_t>(sign | (from_least + static_cast<int>(rounded)));
}

template <typename T>
T Combine(sync::ReduceOp op, T a, T b) {
  if (a != a) return a;
  if (b != b) return b;
  switch (op) {
    case sync::ReduceOp::kSum:
      return a + b;
    case sync::ReduceOp::kProduct:
      return a * b;
    case sync::ReduceOp::kMin:
      return b < a ? b : a;
    case sync::ReduceOp::kMax:
      return b > a ? b : a;
  }
  return a;
}

template <typename Signed, typename Unsigned>
Signed CombineWhole(sync::ReduceOp op, Signed a, Signed b) {
  const bool wraps = op == sync::ReduceOp::kSum || op == sync::ReduceOp::kProduct;
  if (!wraps) return Combine(op, a, b);
  return static_cast<Signed>(Combine(op, static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
}

template <typename T>
T ElementAt(const std::byte* values, size_t index) {
  T value;
  std::memcpy(&value, values + index * sizeof(T), sizeof(T));
  return value;
}

// The exact product, truncated towards zero and limited to the range of its type.
// Requires: 2^-64 < |scale| < 1
template <typename T>
T ScaleWhole(T value, double scale) {
  __extension__ using Wide = __int128;
  int exponent = 0;
  const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(scale, &exponent), 53));
  const Wide product = Wide{value} * mantissa / (Wide{1} << (53 - exponent));
  if (product > Wide{std::numeric_limits<T>::max()}) return std::numeric_limits<T>::max();
  if (product < Wide{std::numeric_limits<T>::min()}) return std::numeric_limits<T>::min();
  return static_cast<T>(product);
}

template <typename T>
T ScaleNumber(T value, double scale) {
  if (scale == 1) return value;
  if constexpr (std::numeric_limits<T>::is_integer) return ScaleWhole(value, scale);
  return value * static_cast<T>(scale);
}

template <typename T, typename Step>
void ReduceEach(const std::vector<const std::byte*>& sources, double scale, size_t count,
                std::byte* into, const Step& step) {
  for (size_t i = 0; i < count; ++i) {
    T sum = ElementAt<T>(sources[0], i);
    for (size_t s = 1; s < sources.size(); ++s) sum = step(sum, ElementAt<T>(sources[s], i));
    sum = ScaleNumber(sum, scale);
    std::memcpy(into + i * sizeof(T), &sum, sizeof(T));
  }
}

inline void ReduceSmall(const SmallFloat& kind, const sync::Reduction& reduction,
                        const std::vector<const std::byte*>& sources, size_t count,
                        std::byte* into) {
  for (size_t i = 0; i < count; ++i) {
    auto sum = static_cast<float>(Decode(kind, ElementAt<uint16_t>(sources[0], i)));
    for (size_t s = 1; s < sources.size(); ++s) {
      const auto next = static_cast<float>(Decode(kind, ElementAt<uint16_t>(sources[s], i)));
      sum = Combine(reduction.op, sum, next);
    }
    const uint16_t bits = Encode(kind, static_cast<double>(ScaleNumber(sum, reduction.scale)));
    std::memcpy(into + i * 2, &bits, sizeof(bits));
  }
}

// The expected result of ReduceAll: the same bits, except those of a NaN.
inline std::vector<std::byte> ReduceSlowly(sync::DataType type, const sync::Reduction& reduction,
                                           const std::vector<const std::byte*>& sources,
                                           size_t count) {
  using sync::DataType;
  const sync::ReduceOp op = reduction.op;
  const double scale = reduction.scale;
  std::vector<std::byte> into(count * sync::ElementBytes(type));
  switch (type) {
    case DataType::kFloat32:
      ReduceEach<float>(sources, scale, count, into.data(),
                        [op](float a, float b) { return Combine(op, a, b); });
      break;
    case DataType::kFloat64:
      ReduceEach<double>(sources, scale, count, into.data(),
                         [op](double a, double b) { return Combine(op, a, b); });
      break;
    case DataType::kInt32:
      ReduceEach<int32_t>(sources, scale, count, into.data(), [op](int32_t a, int32_t b) {
        return CombineWhole<int32_t, uint32_t>(op, a, b);
      });
      break;
    case DataType::kInt64:
      ReduceEach<int64_t>(sources, scale, count, into.data(), [op](int64_t a, int64_t b) {
        return CombineWhole<int64_t, uint64_t>(op, a, b);
      });
      break;
    case DataType::kFloat16:
      ReduceSmall(kHalf, reduction, sources, count, into.data());
      break;
    case DataType::kBFloat16:
      ReduceSmall(kBrainHalf, reduction, sources, count, into.data());
      break;
  }
  return into;
}

// Whether the element is a NaN.
inline bool IsNan(sync::DataType type, const std::byte* values, size_t index) {
  using sync::DataType;
  switch (type) {
    case DataType::kFloat32:
      return std::isnan(ElementAt<float>(values, index));
    case DataType::kFloat64:
      return std::isnan(ElementAt<double>(values, index));
    case DataType::kFloat16:
      return std::isnan(Decode(kHalf, ElementAt<uint16_t>(values, index)));
    case DataType::kBFloat16:
      return std::isnan(Decode(kBrainHalf, ElementAt<uint16_t>(values, index)));
    default:
      return false;
  }
}

// The index of the first element that differs, NaNs being all the same; `count` if none does.
inline size_t FirstDifference(sync::DataType type, const std::byte* a, const std::byte* b,
                              size_t count) {
  const size_t bytes = sync::ElementBytes(type);
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i * bytes, b + i * bytes, bytes) == 0) continue;
    if (!IsNan(type, a, i) || !IsNan(type, b, i)) return i;
  }
  return count;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_REDUCE_NUMBER_ORACLE_H_
