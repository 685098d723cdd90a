#include "lmdbio/sync/reduce/reduce.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/reduce/integer_scale.h"
#include "lmdbio/sync/reduce/reduce_dispatch.h"

namespace lmdbio::sync {
namespace {

// Chosen once in the life of the process. Ranks on different processors may choose different
// kernels; the bits are the same (reduce_kernels.h).
const ReduceKernels& Kernels() {
  static const ReduceKernels& kernels =
      BetterKernels() != nullptr ? *BetterKernels() : PortableKernels();
  return kernels;
}

template <typename T>
void ScaleIntegers(double scale, std::byte* values, size_t count) {
  LMDBIO_CHECK(std::isfinite(scale));
  const ScaleParts parts = ScalePartsOf(scale);
  for (size_t i = 0; i < count; ++i) {
    T value = 0;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    value = ScaledInteger(value, parts);
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

ScaleParts ScalePartsOf(double scale) {
  ScaleParts parts;
  int exponent = 0;
  // `fraction` is 0 or in [0.5, 1), with at most 53 bits. So its product with 2^53 is an integer
  // and exact.
  const double fraction = std::frexp(std::fabs(scale), &exponent);
  parts.mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  parts.exponent = exponent - 53;
  parts.is_negative = std::signbit(scale);
  return parts;
}

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
