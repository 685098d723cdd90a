// lmdbio/kernels/pack_body.h - the kernel that copies many tensors into a buffer or out of it, and
// scales them if wanted.
//
// The parts of a copy lie one behind the other in a space of bytes, which the blocks share equally.
// So a tensor of 100 MB is the work of many blocks, and a block takes many small tensors.
#ifndef LMDBIO_KERNELS_PACK_BODY_H_
#define LMDBIO_KERNELS_PACK_BODY_H_

#include <cstdint>

#include "lmdbio/kernels/copy_body.h"
#include "lmdbio/kernels/kernel_numbers.h"
#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::kernels {

inline constexpr uint32_t kPackPartsMax = 1024;

struct PackPart {
  uint64_t from = 0;  // address
  uint64_t to = 0;
  uint64_t end = 0;  // bytes of this part and of all before it
};

// The parameter of the kernel.
struct PackTable {
  uint64_t share_bytes = 0;  // of each block; a multiple of 16, so that it divides no element
  uint32_t part_count = 0;
  KernelScale scale;
  PackPart parts[kPackPartsMax];
};
// CUDA 12.1 allows that much on GPUs of compute capability 7.0 and later.
static_assert(sizeof(PackTable) <= 32764, "the parameters of a kernel");

// The first part that ends after `position`; there is one.
LMDBIO_HOST_DEVICE uint32_t PartAt(const PackTable& table, uint64_t position) {
  uint32_t first = 0;
  uint32_t last = table.part_count - 1;
  while (first < last) {
    const uint32_t middle = (first + last) / 2;
    if (table.parts[middle].end > position) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

template <typename Copy>
LMDBIO_HOST_DEVICE void PackWith(const PackTable& table, const Copy& copy,
                                 const KernelPlace& place) {
  if (table.part_count == 0) return;
  const uint64_t total = table.parts[table.part_count - 1].end;
  uint64_t position = place.block * table.share_bytes;
  if (position >= total) return;
  const uint64_t left = total - position;
  const uint64_t end = position + (left < table.share_bytes ? left : table.share_bytes);
  for (uint32_t p = PartAt(table, position); position < end; ++p) {
    const PackPart& part = table.parts[p];
    const uint64_t inside = position - (p == 0 ? 0 : table.parts[p - 1].end);
    const uint64_t size_bytes = (part.end < end ? part.end : end) - position;
    CopyTogether(PointerOf(part.to) + inside, PointerOf(part.from) + inside, size_bytes, copy,
                 {place.thread, place.threads});
    position += size_bytes;
  }
}

LMDBIO_HOST_DEVICE void PackBytesBody(const PackTable& table, const KernelPlace& place) {
  PackWith(table, PlainCopy{}, place);
}

template <typename Number>
LMDBIO_HOST_DEVICE void PackScaledBody(const PackTable& table, const KernelPlace& place) {
  PackWith(table, ScaledCopy<Number>{table.scale}, place);
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_PACK_BODY_H_
