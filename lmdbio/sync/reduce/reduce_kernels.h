// lmdbio/sync/reduce/reduce_kernels.h - the loops of the arithmetic, compiled once for each kind of
// processor. Only for the .cc files of this folder.
//
// A file that includes this header is compiled with the instructions of its kind. If it had inline
// functions with external linkage, the linker could keep their copy for the whole program, and
// other processors would execute unknown instructions. So everything here has internal linkage, and
// calls only builtins and functions that are always inlined (host_device.h). All files make the
// same operations in the same order, so they give the same bits.
#ifndef LMDBIO_SYNC_REDUCE_REDUCE_KERNELS_H_
#define LMDBIO_SYNC_REDUCE_REDUCE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "lmdbio/sync/reduce/half_bits.h"
#include "lmdbio/sync/reduce/reduce_dispatch.h"

namespace lmdbio::sync {
namespace {

#if defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
constexpr size_t kFloatLanes = kVectorBytes / sizeof(float);
constexpr size_t kVectorsInBlock = 4;  // hides the latency of an addition

using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = int32_t __attribute__((vector_size(kVectorBytes)));
using Unsigneds = uint32_t __attribute__((vector_size(kVectorBytes)));
using Halves = uint16_t __attribute__((vector_size(kVectorBytes / 2)));

template <typename To>
To LoadAs(const std::byte* from) {
  To to;
  __builtin_memcpy(&to, from, sizeof(to));
  return to;
}

template <typename From>
void StoreAs(std::byte* to, const From& from) {
  __builtin_memcpy(to, &from, sizeof(from));
}

template <typename T>
struct Plain {
  using Number = T;
  // `using` cannot, of a T. NOLINTNEXTLINE(modernize-use-using)
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static constexpr size_t kElementBytes = sizeof(T);
  static Vector Load(const std::byte* from) { return LoadAs<Vector>(from); }
  static void Store(std::byte* to, const Vector& values) { StoreAs(to, values); }
};

struct BFloat16 {
  using Number = float;
  using Vector = Floats;
  static constexpr size_t kElementBytes = 2;
  static Vector Load(const std::byte* from) {
    return WidenBFloat16<Floats>(__builtin_convertvector(LoadAs<Halves>(from), Ints));
  }
  static void Store(std::byte* to, const Vector& values) {
    StoreAs(to, __builtin_convertvector(NarrowBFloat16<Unsigneds>(values), Halves));
  }
};

#if defined(__AVX2__) && defined(__F16C__)
#define LMDBIO_HALF_INSTRUCTIONS
#endif

// Processors without instructions for halves compute.
struct Float16 {
  using Number = float;
  using Vector = Floats;
  static constexpr size_t kElementBytes = 2;
  static Vector Load(const std::byte* from) {
#ifdef LMDBIO_HALF_INSTRUCTIONS
    return (Floats)_mm256_cvtph_ps(LoadAs<__m128i>(from));
#else
    return WidenFloat16<Floats>(__builtin_convertvector(LoadAs<Halves>(from), Ints));
#endif
  }
  static void Store(std::byte* to, const Vector& values) {
#ifdef LMDBIO_HALF_INSTRUCTIONS
    StoreAs(to, _mm256_cvtps_ph((__m256)values, _MM_FROUND_TO_NEAREST_INT));
#else
    StoreAs(to, __builtin_convertvector(NarrowFloat16<Ints>(values), Halves));
#endif
  }
};

// Integers are added and multiplied as unsigned ones, which wrap around.
struct Sum {
  template <typename Vector>
  static Vector Of(const Vector& a, const Vector& b) {
    return a + b;
  }
};
struct Product {
  template <typename Vector>
  static Vector Of(const Vector& a, const Vector& b) {
    return a * b;
  }
};
// b != b is true for a NaN, so the result is b. If a is a NaN, no comparison is true, so the result
// is a.
struct Min {
  template <typename Vector>
  static Vector Of(const Vector& a, const Vector& b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <typename Vector>
  static Vector Of(const Vector& a, const Vector& b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};

// Bytes of a vector in memory.
template <typename Lane>
constexpr size_t kStepBytes = Lane::kElementBytes == 2 ? kFloatLanes * 2
                                                       : sizeof(typename Lane::Vector);

// Multiplies each result, before it is stored, by the same number.
template <typename Lane>
struct Scaled {
  using Vector = typename Lane::Vector;
  Vector factors;
  explicit Scaled(double scale) : factors(Vector{} + static_cast<typename Lane::Number>(scale)) {}
  Vector Of(const Vector& values) const { return values * factors; }
};
template <typename Lane>
struct Unscaled {
  using Vector = typename Lane::Vector;
  static Vector Of(const Vector& values) { return values; }
};

// kSources  the number of sources, if it is known at compile time; 0: source_count
// result    Scaled or Unscaled
template <typename Lane, typename Op, size_t kSources, typename Result>
void ReduceBlock(std::byte* into, const std::byte* const* sources, size_t source_count,
                 size_t offset, const Result& result) {
  using Vector = typename Lane::Vector;
  constexpr size_t kStep = kStepBytes<Lane>;
  const size_t known_count = kSources == 0 ? source_count : kSources;
  const std::byte* from = sources[0] + offset;
  Vector a = Lane::Load(from);
  Vector b = Lane::Load(from + kStep);
  Vector c = Lane::Load(from + 2 * kStep);
  Vector d = Lane::Load(from + 3 * kStep);
  for (size_t i = 1; i < known_count; ++i) {
    from = sources[i] + offset;
    a = Op::Of(a, Lane::Load(from));
    b = Op::Of(b, Lane::Load(from + kStep));
    c = Op::Of(c, Lane::Load(from + 2 * kStep));
    d = Op::Of(d, Lane::Load(from + 3 * kStep));
  }
  Lane::Store(into + offset, result.Of(a));
  Lane::Store(into + offset + kStep, result.Of(b));
  Lane::Store(into + offset + 2 * kStep, result.Of(c));
  Lane::Store(into + offset + 3 * kStep, result.Of(d));
}

// Reduces the last elements, which do not fill a block. Each vector is copied to a buffer of its
// full size, so that no load or store exceeds the arrays.
template <typename Lane, typename Op, typename Result>
void ReduceTail(std::byte* into, const std::byte* const* sources, size_t source_count,
                size_t offset, size_t tail_bytes, const Result& result) {
  using Vector = typename Lane::Vector;
  constexpr size_t kStep = kStepBytes<Lane>;
  for (size_t at = offset; at < offset + tail_bytes; at += kStep) {
    const size_t left_bytes = offset + tail_bytes - at;
    const size_t here_bytes = left_bytes < kStep ? left_bytes : kStep;
    std::byte place[kStep] = {};
    __builtin_memcpy(place, sources[0] + at, here_bytes);
    Vector sum = Lane::Load(place);
    for (size_t i = 1; i < source_count; ++i) {
      __builtin_memcpy(place, sources[i] + at, here_bytes);
      sum = Op::Of(sum, Lane::Load(place));
    }
    Lane::Store(place, result.Of(sum));
    __builtin_memcpy(into + at, place, here_bytes);
  }
}

template <typename Lane, typename Op, typename Result>
void ReduceBlocks(std::byte* into, const std::byte* const* sources, size_t source_count,
                  size_t count, const Result& result) {
  constexpr size_t kBlockBytes = kVectorsInBlock * kStepBytes<Lane>;
  const size_t total_bytes = count * Lane::kElementBytes;
  const size_t block_end = total_bytes / kBlockBytes * kBlockBytes;
  if (source_count == 2) {
    for (size_t at = 0; at < block_end; at += kBlockBytes)
      ReduceBlock<Lane, Op, 2>(into, sources, 2, at, result);
  } else {
    for (size_t at = 0; at < block_end; at += kBlockBytes)
      ReduceBlock<Lane, Op, 0>(into, sources, source_count, at, result);
  }
  ReduceTail<Lane, Op>(into, sources, source_count, block_end, total_bytes - block_end, result);
}

template <typename Lane, typename Op>
void ReduceAllOf(std::byte* into, const std::byte* const* sources, size_t source_count,
                 size_t count, double scale) {
  if constexpr (std::is_floating_point_v<typename Lane::Number>) {
    if (scale != 1) {
      return ReduceBlocks<Lane, Op>(into, sources, source_count, count, Scaled<Lane>(scale));
    }
  }
  ReduceBlocks<Lane, Op>(into, sources, source_count, count, Unscaled<Lane>());
}

// The kernels of this file, by type and operation in the order of their numbers.
template <typename Wide, typename Ordered>
constexpr ReduceRow RowOf() {
  return {ReduceAllOf<Wide, Sum>, ReduceAllOf<Ordered, Min>, ReduceAllOf<Ordered, Max>,
          ReduceAllOf<Wide, Product>};
}

constexpr ReduceKernels KernelsOfThisFile() {
  return {.reduce = {RowOf<Plain<float>, Plain<float>>(), RowOf<Plain<double>, Plain<double>>(),
                     RowOf<Float16, Float16>(), RowOf<BFloat16, BFloat16>(),
                     RowOf<Plain<uint32_t>, Plain<int32_t>>(),
                     RowOf<Plain<uint64_t>, Plain<int64_t>>()}};
}

}  // namespace
}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_REDUCE_KERNELS_H_
