// lmdbio/sync/reduce/reduce_dispatch.h - the same loops, compiled for several kinds of processor.
#ifndef LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_
#define LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_

#include <cstddef>

namespace lmdbio::sync {

// into[i] = (sources[0][i] op sources[1][i] op ...) * scale; integers are not scaled.
using ReduceAllLoop = void (*)(std::byte* into, const std::byte* const* sources,
                               size_t source_count, size_t count, double scale);

struct ReduceRow {
  ReduceAllLoop by_op[4];  // ReduceOp's numbers, less one
};

struct ReduceKernels {
  ReduceRow reduce[6];  // DataType's numbers, less one
};

// For any processor.
const ReduceKernels& PortableKernels();

// For processors with AVX2 and F16C; nullptr where the compiler has none.
const ReduceKernels* Avx2Kernels();

// For this processor, if there are better ones; else nullptr.
const ReduceKernels* BetterKernels();

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_
