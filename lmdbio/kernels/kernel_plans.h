// lmdbio/kernels/kernel_plans.h - checks of work on the host, and the tables that kernels take.
//
// A kernel checks nothing: a wrong address ends the context of its device. So all that the host can
// know is checked here before a launch. Nothing here calls a driver.
#ifndef LMDBIO_KERNELS_KERNEL_PLANS_H_
#define LMDBIO_KERNELS_KERNEL_PLANS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/kernels/gather_body.h"
#include "lmdbio/kernels/kernel_numbers.h"
#include "lmdbio/kernels/kernel_work.h"
#include "lmdbio/kernels/pack_body.h"
#include "lmdbio/kernels/reduce_body.h"

namespace lmdbio::kernels {

// Blocks: no more than `units` of work need, than fit on the device in `turns`, and than
// `blocks_max` allows.
// units    [> 0] that a block takes one at a time
// turns    [> 0] more than one: a block that ends early makes room for others, so no multiprocessor
//          waits long for the last ones, also if fewer blocks than usual fit at once
// threads  [> 0] of a block
device::LaunchShape ShapeOf(uint64_t units, int multiprocessors, uint32_t blocks_max,
                            uint32_t turns = 1, uint32_t threads = kBlockThreads);

// A scale for kernels of one type.
// Errors: kInvalidArgument  the type is unknown, or the scale of integers is not finite
Result<KernelScale> PlanScale(sync::DataType type, double scale);

// Errors: kInvalidArgument  no or too many arrays; an array is too small, or overlaps another one;
//                           an unknown type or reduction; a scale of integers that is not finite.
//                           Names the array.
Result<ReduceTable> PlanReduce(const ReduceWork& work);

// The copies of a PackWork. Tensors that are empty or are in place already make none.
// Errors: kInvalidArgument  the numbers of tensors and offsets differ; a place is outside the
//                           buffer, or before the end of the one before; a tensor overlaps the
//                           buffer; its size is no multiple of an element's, and it is scaled.
//                           Names the tensor.
Result<std::vector<PackPart>> PlanPack(const PackWork& work);

// Fills `table` with `parts`.
// parts   [1 to kPackPartsMax], whose `end` counts from the first
// blocks  of the launch
void FillPackTable(std::span<const PackPart> parts, uint32_t blocks, PackTable& table);

// The size of the list of pieces of a GatherWork.
// row_bytes  as there
uint64_t GatherListBytes(std::span<const GatherValue> values, std::optional<uint64_t> row_bytes);

// Writes the list of pieces.
// Returns: the parameter of the kernel
// Errors:  kInvalidArgument  a value is outside the window, or larger than a row; the rows or the
//                            list do not fit; the rows overlap the window or the list, or the list
//                            overlaps a value. Names the value.
Result<GatherTable> PlanGather(const GatherWork& work);

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_KERNEL_PLANS_H_
