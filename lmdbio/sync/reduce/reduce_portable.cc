// The kernels for any processor, and the choice between the two sets.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "lmdbio/sync/reduce/reduce_kernels.h"

namespace lmdbio::sync {
namespace {

constexpr ReduceKernels kKernels = KernelsOfThisFile();

bool HasAvx2AndF16c() {
#if defined(__x86_64__)
  // Clang's __builtin_cpu_supports does not know F16C.
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
  return has_f16c && __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

}  // namespace

const ReduceKernels& PortableKernels() { return kKernels; }

const ReduceKernels* BetterKernels() { return HasAvx2AndF16c() ? Avx2Kernels() : nullptr; }

}  // namespace lmdbio::sync
