// lmdbio/sync/reduce/reduce.h - reduces several arrays of numbers to one. Pure arithmetic.
//
// Values are bytes, because their type is known at run time only. They need not be aligned. float16
// and bfloat16 are reduced and scaled in float32, and rounded once at the end of each call, to the
// nearest even. kMin and kMax return a NaN if any value is a NaN.
//
// Scales: float64 is multiplied by the scale. float32, float16 and bfloat16 are multiplied by the
// scale rounded to float32; outside its range that is infinity or 0. An integer becomes the exact
// product, truncated towards zero and limited to the range of its type. A scale of 1 changes no
// bit.
#ifndef LMDBIO_SYNC_REDUCE_REDUCE_H_
#define LMDBIO_SYNC_REDUCE_REDUCE_H_

#include <cstddef>
#include <span>

#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// into[i] = (into[i] op from[i]) * scale
// into, from  [count elements] the same memory or apart
void Reduce(DataType type, const Reduction& reduction, std::byte* into, const std::byte* from,
            size_t count);

// into[i] = (sources[0][i] op sources[1][i] op ...) * scale, from left to right on every machine.
// So ranks that reduce the same sources get the same bits, but for those of a NaN: its sign and
// payload depend on the processor and on the compiler.
// Requires: a finite scale for integers
// sources  [1 or more] of [count elements] each; `into` may be one of them
void ReduceAll(DataType type, const Reduction& reduction, std::byte* into,
               std::span<const std::byte* const> sources, size_t count);

// into[i] = from[i] * scale
// into, from  [count elements] the same memory or apart
void Scale(DataType type, double scale, std::byte* into, const std::byte* from, size_t count);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_REDUCE_H_
