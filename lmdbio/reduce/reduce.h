// lmdbio/reduce/reduce.h - many arrays of numbers become one. Pure arithmetic.
//
// Values are given as bytes, since their type is known at run time only; they need not be aligned.
// float16 and bfloat16 are reduced in float32 and rounded once, to the nearest even, at the end of
// each call. NaN: kMin and kMax give a NaN if any value is one.
#ifndef LMDBIO_REDUCE_REDUCE_H_
#define LMDBIO_REDUCE_REDUCE_H_

#include <cstddef>
#include <span>

#include "lmdbio/reduce/data_type.h"

namespace lmdbio::reduce {

// into[i] = into[i] op from[i]
// into, from  [count elements] the same memory or apart
void Reduce(DataType type, ReduceOp op, std::byte* into, const std::byte* from, size_t count);

// into[i] = sources[0][i] op sources[1][i] op ..., from left to right, whatever the machine: so
// ranks that reduce the same sources get the same bits.
// sources  [1 or more] of [count elements] each; `into` may be one of them
void ReduceAll(DataType type, ReduceOp op, std::byte* into,
               std::span<const std::byte* const> sources, size_t count);

// values[i] = values[i] * factor. Integers: the exact product, cut towards zero.
void Scale(DataType type, double factor, std::byte* values, size_t count);

}  // namespace lmdbio::reduce
#endif  // LMDBIO_REDUCE_REDUCE_H_
