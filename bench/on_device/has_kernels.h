// bench/on_device/has_kernels.h - whether this build has kernels.
#ifndef LMDBIO_BENCH_ON_DEVICE_HAS_KERNELS_H_
#define LMDBIO_BENCH_ON_DEVICE_HAS_KERNELS_H_

#include "bench/on_device/figure_run.h"
#include "lmdbio/kernels/kernel_image.h"

namespace lmdbio::figures {

// False: the rest of the part was left out. Kernels that are there and do not load are a failure.
inline bool HasKernels(FigureRun& run) {
  if (!kernels::BuiltInKernels().bytes.empty()) return true;
  run.LeaveOutRest("this lmdbio was built without kernels (LMDBIO_CUDA)");
  return false;
}

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_HAS_KERNELS_H_
