#include "lmdbio/reduce/reduce_kernels.h"

namespace lmdbio::reduce {

const ReduceKernels& PortableKernels() {
  static constexpr ReduceKernels kKernels = KernelsOfThisFile();
  return kKernels;
}

}  // namespace lmdbio::reduce
