// lmdbio/sync/reduce/half_bits.h - float16 and bfloat16 from and to float32, by their bits.
//
// The same formulas convert one number or a vector of numbers of the processor, and one number on a
// GPU. So all of them give the same bits.
//
// Floats     float, or a vector of float
// Ints       int32_t, or a vector of as many int32_t; a half is in the lower 16 bits of each
// Unsigneds  the same, of uint32_t
#ifndef LMDBIO_SYNC_REDUCE_HALF_BITS_H_
#define LMDBIO_SYNC_REDUCE_HALF_BITS_H_

#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::sync {

// The bits of one type as another type of the same size.
template <typename To, typename From>
LMDBIO_HOST_DEVICE To SameBits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// After F. Giesen's half_to_float. NaNs are the same as those of the instructions of processors.
template <typename Floats, typename Ints>
LMDBIO_HOST_DEVICE Floats WidenFloat16(const Ints& halves) {
  constexpr int kExponent = 0x7C00 << 13;
  const Ints sign = (halves & 0x8000) << 16;
  const Ints shifted = (halves & 0x7FFF) << 13;
  const Ints exponent = shifted & kExponent;
  const Ints normal = shifted + ((127 - 15) << 23);
  const Ints endless = shifted + ((255 - 31) << 23);
  const Ints quiet = (shifted & 0x7FFFFF) != 0 ? endless | 0x400000 : endless;
  const Ints magic = Ints{} + (113 << 23);
  const Ints tiny = SameBits<Ints>(SameBits<Floats>(normal + (1 << 23)) - SameBits<Floats>(magic));
  const Ints small = exponent == 0 ? tiny : normal;
  return SameBits<Floats>(sign | (exponent == kExponent ? quiet : small));
}

// After F. Giesen's float_to_half_fast3_rtne: rounds to the nearest even.
template <typename Ints, typename Floats>
LMDBIO_HOST_DEVICE Ints NarrowFloat16(const Floats& floats) {
  constexpr int kTooLarge = (127 + 16) << 23;
  constexpr int kEndless = 255 << 23;
  constexpr int kTinyMagic = ((127 - 15) + (23 - 10) + 1) << 23;
  const Ints all = SameBits<Ints>(floats);
  const Ints sign = (all >> 16) & 0x8000;
  const Ints bits = all & 0x7FFFFFFF;
  const Ints nan = 0x7E00 | ((bits >> 13) & 0x3FF);
  const Ints large = bits > kEndless ? nan : Ints{} + 0x7C00;
  const Ints magic = Ints{} + kTinyMagic;
  const Ints tiny = SameBits<Ints>(SameBits<Floats>(bits) + SameBits<Floats>(magic)) - magic;
  const Ints normal = (bits - ((127 - 15) << 23) + 0xFFF + ((bits >> 13) & 1)) >> 13;
  const Ints small = bits < (113 << 23) ? tiny : normal;
  return sign | (bits >= kTooLarge ? large : small);
}

template <typename Floats, typename Ints>
LMDBIO_HOST_DEVICE Floats WidenBFloat16(const Ints& halves) {
  return SameBits<Floats>(halves << 16);
}

// Rounds to the nearest even. A NaN stays a NaN, also if only its lower bits are set.
template <typename Unsigneds, typename Floats>
LMDBIO_HOST_DEVICE Unsigneds NarrowBFloat16(const Floats& floats) {
  const Unsigneds bits = SameBits<Unsigneds>(floats);
  const Unsigneds rounded = bits + (0x7FFFU + ((bits >> 16) & 1U));
  const Unsigneds chosen = floats != floats ? bits | 0x400000U : rounded;
  return chosen >> 16;
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_HALF_BITS_H_
