// Compiled with AVX2 and F16C where the compiler knows them (lmdbio/CMakeLists.txt); what is
// called before it is known that the processor has them must not use them.
#include "lmdbio/reduce/reduce_dispatch.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "lmdbio/reduce/reduce_kernels.h"

namespace lmdbio::reduce {
namespace {

constexpr ReduceKernels kKernels = KernelsOfThisFile();

}  // namespace

const ReduceKernels* BetterKernels() {
  const bool has_both = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has_both ? &kKernels : nullptr;
}

}  // namespace lmdbio::reduce

#else

namespace lmdbio::reduce {

const ReduceKernels* BetterKernels() { return nullptr; }

}  // namespace lmdbio::reduce

#endif
