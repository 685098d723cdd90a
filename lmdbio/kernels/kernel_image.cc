// The fat binary that nvcc has made, as bytes of this object. CMake defines its path.
#include "lmdbio/kernels/kernel_image.h"

asm(R"(
  .pushsection .rodata.lmdbio_kernels, "a"
  .balign 64
  .hidden kLmdbioKernelsBegin
  .globl kLmdbioKernelsBegin
kLmdbioKernelsBegin:
  .incbin ")" LMDBIO_KERNELS_FILE R"("
  .hidden kLmdbioKernelsEnd
  .globl kLmdbioKernelsEnd
kLmdbioKernelsEnd:
  .byte 0
  .popsection
)");

extern "C" const std::byte kLmdbioKernelsBegin[];
extern "C" const std::byte kLmdbioKernelsEnd[];

namespace lmdbio::kernels {

KernelImage BuiltInKernels() {
  return {.bytes = {kLmdbioKernelsBegin, kLmdbioKernelsEnd},
          .compiler = LMDBIO_KERNELS_COMPILER,
          .machines = LMDBIO_KERNELS_MACHINES};
}

}  // namespace lmdbio::kernels
