// lmdbio/kernels/kernel_work.h - the work that kernels do: reductions, copies of many tensors, and
// gathering of values.
//
// All arrays are borrowed until the call returns. Device memory is that of one device, or pinned
// memory as the device sees it, and lives until the work is done.
#ifndef LMDBIO_KERNELS_KERNEL_WORK_H_
#define LMDBIO_KERNELS_KERNEL_WORK_H_

#include <cstdint>
#include <optional>
#include <span>

#include "lmdbio/device/device_address.h"
#include "lmdbio/device/pinned_bytes.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::kernels {

// targets[t][i] = (sources[0][i] op sources[1][i] op ...) * scale, as ReduceAll
// (lmdbio/sync/reduce/reduce.h), with the same bits but for those of a NaN.
//
// Arrays need no alignment. They are fast if all their addresses have the same remainder modulo 16,
// and each is a multiple of the size of an element.
struct ReduceWork {
  // [1 to kReduceSourcesMax] of `count` elements each
  std::span<const device::DeviceSpan> sources = {};
  // [1 to kReduceTargetsMax] of `count` elements each. Each is apart from all others, or begins
  // where a source begins.
  std::span<const device::DeviceSpan> targets = {};
  uint64_t count = 0;  // elements
  sync::DataType type = sync::DataType::kFloat32;
  sync::Reduction reduction = sync::ReduceOp::kSum;  // a finite scale for integers
  uint32_t blocks_max = 0;  // leaves a part of the device to others; 0: all of it
};

enum class PackDirection { kPack, kUnpack };  // into the buffer; out of it

// Copies tensors from or to their places in a buffer, multiplied by a scale as by Scale
// (lmdbio/sync/reduce/reduce.h). A launch takes kPackPartsMax tensors that are not empty.
struct PackWork {
  PackDirection direction = PackDirection::kPack;
  // [any number] apart from the buffer, or at their places in it: such a tensor is only scaled.
  // Tensors to unpack into are apart from each other, which is not checked.
  std::span<const device::DeviceSpan> tensors = {};
  // [tensors] bytes in the buffer; ascending, places are apart
  std::span<const uint64_t> offsets = {};
  device::DeviceSpan buffer = {};
  sync::DataType type = sync::DataType::kFloat32;  // of all tensors, if they are scaled
  double scale = 1;                                // finite for integers
  uint32_t blocks_max = 0;                         // 0: all of the device
};

// A value in the window of a GatherWork.
struct GatherValue {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

// Copies values of any alignment out of pinned memory into rows, one to a row, and fills the rows
// up with zeros. Or it packs the values, one behind the other.
struct GatherWork {
  const device::PinnedBytes& window;  // all values lie in it
  std::span<const GatherValue> values = {};
  device::DeviceSpan rows = {};
  // [>= the largest value]; none: values are packed
  std::optional<uint64_t> row_bytes = std::nullopt;
  // Pinned memory for the list of pieces: GatherListBytes bytes from an offset that is a multiple
  // of 8. The call writes it, and the kernel reads it, so it stays untouched until the work is
  // done.
  const device::PinnedBytes& list;
  uint64_t list_offset = 0;
  uint32_t blocks_max = 0;  // 0: all of the device
};

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_KERNEL_WORK_H_
