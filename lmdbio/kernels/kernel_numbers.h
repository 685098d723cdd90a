// lmdbio/kernels/kernel_numbers.h - the types of numbers and the reductions of kernel bodies.
//
// The arithmetic is that of lmdbio/sync/reduce, one number at a time, so it gives the same bits but
// for those of a NaN.
#ifndef LMDBIO_KERNELS_KERNEL_NUMBERS_H_
#define LMDBIO_KERNELS_KERNEL_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/half_bits.h"
#include "lmdbio/sync/reduce/host_device.h"
#include "lmdbio/sync/reduce/integer_scale.h"

namespace lmdbio::kernels {

// A scale in the form that each type needs.
struct KernelScale {
  double number = 1;
  float single = 1;        // float32, float16 and bfloat16
  sync::ScaleParts parts;  // integers
  uint32_t is_one = 1;
};

// A type of numbers has
//   Value     the type of the arithmetic
//   Bits      an unsigned integer of the size of an element in memory
//   Widen     Bits -> Value
//   Narrow    Value -> Bits, rounded once
//   Scaled    the product with a scale

template <typename Float, typename Unsigned>
struct FloatNumber {
  using Value = Float;
  using Bits = Unsigned;
  static LMDBIO_HOST_DEVICE Value Widen(Bits bits) { return sync::SameBits<Value>(bits); }
  static LMDBIO_HOST_DEVICE Bits Narrow(Value value) { return sync::SameBits<Bits>(value); }
  static LMDBIO_HOST_DEVICE Value Scaled(Value value, const KernelScale& scale) {
    if constexpr (std::is_same_v<Value, double>) {
      return value * scale.number;
    } else {
      return value * scale.single;
    }
  }
};
using Float32Number = FloatNumber<float, uint32_t>;
using Float64Number = FloatNumber<double, uint64_t>;

// A GPU has instructions for the conversions of halves, which keep small numbers and round to the
// nearest even, as the formulas of half_bits.h. These take some 20 instructions for a number, which
// would be the limit in place of the memory.
struct Float16Number {
  using Value = float;
  using Bits = uint16_t;
  static LMDBIO_HOST_DEVICE Value Widen(Bits bits) {
#ifdef __CUDA_ARCH__
    Value value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return sync::WidenFloat16<Value>(int32_t{bits});
#endif
  }
  static LMDBIO_HOST_DEVICE Bits Narrow(Value value) {
#ifdef __CUDA_ARCH__
    Bits bits = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return static_cast<Bits>(sync::NarrowFloat16<int32_t>(value));
#endif
  }
  static LMDBIO_HOST_DEVICE Value Scaled(Value value, const KernelScale& scale) {
    return value * scale.single;
  }
};

struct BFloat16Number {
  using Value = float;
  using Bits = uint16_t;
  static LMDBIO_HOST_DEVICE Value Widen(Bits bits) {
    return sync::WidenBFloat16<Value>(int32_t{bits});
  }
  static LMDBIO_HOST_DEVICE Bits Narrow(Value value) {
#ifdef __CUDA_ARCH__
    Bits bits = 0;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));  // since compute capability 8.0
    return bits;
#else
    return static_cast<Bits>(sync::NarrowBFloat16<uint32_t>(value));
#endif
  }
  static LMDBIO_HOST_DEVICE Value Scaled(Value value, const KernelScale& scale) {
    return value * scale.single;
  }
};

template <typename Integer>
struct IntegerNumber {
  using Value = Integer;
  using Bits = std::make_unsigned_t<Integer>;
  static LMDBIO_HOST_DEVICE Value Widen(Bits bits) { return static_cast<Value>(bits); }
  static LMDBIO_HOST_DEVICE Bits Narrow(Value value) { return static_cast<Bits>(value); }
  static LMDBIO_HOST_DEVICE Value Scaled(Value value, const KernelScale& scale) {
    return sync::ScaledInteger(value, scale.parts);
  }
};
using Int32Number = IntegerNumber<int32_t>;
using Int64Number = IntegerNumber<int64_t>;

// Integers are added and multiplied as unsigned ones, which wrap around.
struct AddNumbers {
  template <typename T>
  static LMDBIO_HOST_DEVICE T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct MultiplyNumbers {
  template <typename T>
  static LMDBIO_HOST_DEVICE T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
};

// b != b is true for a NaN, so the result is b. If a is a NaN, no comparison is true, so the result
// is a.
struct LesserNumber {
  template <typename T>
  static LMDBIO_HOST_DEVICE T Of(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

struct GreaterNumber {
  template <typename T>
  static LMDBIO_HOST_DEVICE T Of(T a, T b) {
    return b > a || b != b ? b : a;
  }
};

// The elements of a word, in the order of little-endian memory.
template <typename Number>
struct WordNumbers {
  using Bits = typename Number::Bits;
  using Value = typename Number::Value;
  static constexpr unsigned kCount = kWordBytes / sizeof(Bits);

  Value values[kCount];

  LMDBIO_HOST_DEVICE explicit WordNumbers(const KernelWord& word) {
    LMDBIO_KERNEL_UNROLL
    for (unsigned i = 0; i < kCount; ++i) {
      const uint64_t half = i < kCount / 2 ? word.low : word.high;
      values[i] = Number::Widen(static_cast<Bits>(half >> ShiftOf(i)));
    }
  }

  LMDBIO_HOST_DEVICE KernelWord Word() const {
    KernelWord word;
    LMDBIO_KERNEL_UNROLL
    for (unsigned i = 0; i < kCount; ++i) {
      const uint64_t bits = uint64_t{Number::Narrow(values[i])} << ShiftOf(i);
      (i < kCount / 2 ? word.low : word.high) |= bits;
    }
    return word;
  }

  LMDBIO_HOST_DEVICE void Scale(const KernelScale& scale) {
    LMDBIO_KERNEL_UNROLL
    for (unsigned i = 0; i < kCount; ++i) values[i] = Number::Scaled(values[i], scale);
  }

 private:
  static LMDBIO_HOST_DEVICE unsigned ShiftOf(unsigned index) {
    return index % (kCount / 2) * 8 * static_cast<unsigned>(sizeof(Bits));
  }
};

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_KERNEL_NUMBERS_H_
