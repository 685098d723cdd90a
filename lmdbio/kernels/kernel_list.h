// lmdbio/kernels/kernel_list.h - the names of all kernels with their bodies.
//
// LMDBIO_FOR_EACH_KERNEL(VISIT) calls VISIT(NAME, TABLE, BODY) for each kernel: the type of its
// parameter, and the function that is its body, called as BODY(table, place). The machine code of
// GPUs is made from this list (device_kernels.cu), and so is the list of a stand-in for tests.
#ifndef LMDBIO_KERNELS_KERNEL_LIST_H_
#define LMDBIO_KERNELS_KERNEL_LIST_H_

#include "lmdbio/kernels/gather_body.h"
#include "lmdbio/kernels/kernel_numbers.h"
#include "lmdbio/kernels/pack_body.h"
#include "lmdbio/kernels/reduce_body.h"

// The kernels of one type, by its name as NameOf(DataType) gives it
#define LMDBIO_KERNELS_OF(VISIT, TYPE, NUMBER)                                            \
  VISIT(lmdbio_reduce_sum_##TYPE, ReduceTable, (ReduceBody<NUMBER, AddNumbers>))          \
  VISIT(lmdbio_reduce_min_##TYPE, ReduceTable, (ReduceBody<NUMBER, LesserNumber>))        \
  VISIT(lmdbio_reduce_max_##TYPE, ReduceTable, (ReduceBody<NUMBER, GreaterNumber>))       \
  VISIT(lmdbio_reduce_product_##TYPE, ReduceTable, (ReduceBody<NUMBER, MultiplyNumbers>)) \
  VISIT(lmdbio_pack_##TYPE, PackTable, (PackScaledBody<NUMBER>))

#define LMDBIO_FOR_EACH_KERNEL(VISIT)                  \
  LMDBIO_KERNELS_OF(VISIT, float32, Float32Number)     \
  LMDBIO_KERNELS_OF(VISIT, float64, Float64Number)     \
  LMDBIO_KERNELS_OF(VISIT, float16, Float16Number)     \
  LMDBIO_KERNELS_OF(VISIT, bfloat16, BFloat16Number)   \
  LMDBIO_KERNELS_OF(VISIT, int32, Int32Number)         \
  LMDBIO_KERNELS_OF(VISIT, int64, Int64Number)         \
  VISIT(lmdbio_pack_bytes, PackTable, (PackBytesBody)) \
  VISIT(lmdbio_gather, GatherTable, (GatherBody))

#endif  // LMDBIO_KERNELS_KERNEL_LIST_H_
