// lmdbio/kernels/kernel_image.h - the machine code of the kernels, inside this library.
#ifndef LMDBIO_KERNELS_KERNEL_IMAGE_H_
#define LMDBIO_KERNELS_KERNEL_IMAGE_H_

#include <string_view>

#include "lmdbio/base/types.h"

namespace lmdbio::kernels {

struct KernelImage {
  Bytes bytes;                // a fat binary; empty if the library was built without kernels
  std::string_view compiler;  // as "nvcc 13.0"
  std::string_view machines;  // the GPUs that it has code for, as "sm_80, sm_90, compute_90"
};

// The image that this library was built with (CMake option LMDBIO_CUDA).
KernelImage BuiltInKernels();

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_KERNEL_IMAGE_H_
