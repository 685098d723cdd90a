// All kernels for GPUs. Each is a body of kernel_list.h, called for the thread that runs it.
//
// A parameter is __grid_constant__, so it is read where the driver has put it: otherwise each thread
// would copy it, as soon as the compiler cannot tell which of its elements are read.

#include "lmdbio/kernels/kernel_list.h"

namespace lmdbio::kernels {

__device__ KernelPlace ThisPlace() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

#define LMDBIO_DEFINE_KERNEL(NAME, TABLE, BODY)               \
  extern "C" __global__ void __launch_bounds__(kBlockThreads) \
      NAME(const __grid_constant__ TABLE table) {             \
    BODY(table, ThisPlace());                                 \
  }
LMDBIO_FOR_EACH_KERNEL(LMDBIO_DEFINE_KERNEL)

}  // namespace lmdbio::kernels
