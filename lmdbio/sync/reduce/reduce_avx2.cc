// The kernels for processors with AVX2 and F16C. lmdbio/CMakeLists.txt sets the compiler options,
// if the target is x86-64.
#include "lmdbio/sync/reduce/reduce_dispatch.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "lmdbio/sync/reduce/reduce_kernels.h"

namespace lmdbio::sync {
namespace {

constexpr ReduceKernels kKernels = KernelsOfThisFile();

}  // namespace

const ReduceKernels* Avx2Kernels() { return &kKernels; }

}  // namespace lmdbio::sync

#else

// Another target, or a compiler without these instructions: BetterKernels finds nothing here, and
// the portable kernels are used.
namespace lmdbio::sync {

const ReduceKernels* Avx2Kernels() { return nullptr; }

}  // namespace lmdbio::sync

#endif
