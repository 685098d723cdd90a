// lmdbio/sync/reduce/reduce_dispatch.h - selects the loops that were compiled for
// this processor.
#ifndef LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_
#define LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_

#include <cstddef>

namespace lmdbio::sync {

// into[i] = (sources[0][i] op sources[1][i] op ...) * scale; integers are not scaled.
using ReduceAllLoop = void (*)(std::byte* into, const std::byte* const* sources,
                               size_t source_count, size_t count, double scale);

struct ReduceRow {
  ReduceAllLoop by_op[4];  // [number of the ReduceOp - 1]
};

struct ReduceKernels {
  ReduceRow reduce[6];  // [number of the DataType - 1]
};

// The kernels for any processor.
const ReduceKernels& PortableKernels();

// The kernels for AVX2 and F16C, or nullptr if the compiler cannot make them.
const ReduceKernels* Avx2Kernels();

// Better kernels that this processor can execute, or nullptr.
const ReduceKernels* BetterKernels();

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_REDUCE_DISPATCH_H_
