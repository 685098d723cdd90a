// Compiled with AVX2 and F16C where the compiler has them (lmdbio/CMakeLists.txt).
#include "lmdbio/reduce/reduce_dispatch.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "lmdbio/reduce/reduce_kernels.h"

namespace lmdbio::reduce {
namespace {

constexpr ReduceKernels kKernels = KernelsOfThisFile();

}  // namespace

const ReduceKernels* Avx2Kernels() { return &kKernels; }

}  // namespace lmdbio::reduce

#else

namespace lmdbio::reduce {

const ReduceKernels* Avx2Kernels() { return nullptr; }

}  // namespace lmdbio::reduce

#endif
