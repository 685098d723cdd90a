// lmdbio/sync/schedule/transfer_units.h - which tensors travel together, and which in slices.
//
// Source: Hashemi et al. 4.2; docs/caramel.md "Steps".
#ifndef LMDBIO_SYNC_SCHEDULE_TRANSFER_UNITS_H_
#define LMDBIO_SYNC_SCHEDULE_TRANSFER_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// A tensor of an iteration, known by its position. Times are relative to the begin of the iteration
// and the same on all ranks: the latest ready time, the earliest due time. So a tensor may be due
// before it is ready.
struct TimedTensor {
  int64_t ready_ns = 0;
  int64_t due_ns = 0;
  uint64_t bytes = 0;
  uint32_t kind = 0;         // tensors of one kind may share a unit
  int64_t needs_up_to = -1;  // the tensor needs only tensors up to this position; -1: none
  bool may_slice = false;
};

// The tensors of one bucket: a batch of small ones, or one.
struct TransferUnit {
  std::vector<size_t> tensors;  // positions, in the order of their ready times
  int64_t ready_ns = 0;         // of the last tensor
  int64_t due_ns = 0;           // of the first one that is due
  uint64_t bytes = 0;           // of the only tensor; of several: of a buffer, whole lines for each
  int64_t needs_up_to = -1;     // all units up to this index come first; < its own index
  uint64_t slice_bytes = 0;     // a multiple of a line; the last slice may be smaller. 0: whole

  uint64_t step_count() const {
    return slice_bytes == 0 ? 1 : (bytes + slice_bytes - 1) / slice_bytes;
  }
};

inline constexpr uint64_t kSlicesMax = 512;  // of a tensor

struct UnitOptions {
  // Tensors below this size are batched, until the batch has it. 0: TransferModel::Threshold
  uint64_t threshold_bytes = 0;
  uint64_t bucket_bytes_max = std::numeric_limits<uint64_t>::max();  // of a unit of several tensors
  // A slice has at least so many bytes. 0: the larger of the threshold and the bytes that take
  // 1/100 of the iteration. An iteration is predicted to take the longer of length_ns and the time
  // of all units
  uint64_t slice_bytes = 0;
  int64_t length_ns = 0;  // of an iteration, on the program clock
};

// Makes units. Tensors are taken in the order of their ready times, equal ones by position; a
// tensor is not ready before those that it needs.
//
//  - A tensor below the threshold joins the open batch of its kind if the channel is predicted to
//    be busy when the tensor is ready. The channel makes units in the order in which they are
//    closed, without slices.
//  - A batch is closed when it has the threshold, when the channel would be idle before the next
//    tensor, when a tensor of its kind does not fit, and before a tensor that needs it.
//  - A tensor that may be sliced is cut into equal slices if they are as large as UnitOptions says;
//    kSlicesMax at most.
//
// A unit has an index larger than those of all units with tensors that one of its own needs.
// tensors  [n]; a tensor that no other one may join has a kind of its own
// Requires: needs_up_to of each tensor is smaller than its position; times within kTimeMaxNs;
//           the sum of bytes is at most TransferModel::kBytesMax
// Cost: O(n log n)
// Source: Hashemi et al. 4.2
std::vector<TransferUnit> MakeUnits(std::span<const TimedTensor> tensors,
                                    const TransferModel& model, const UnitOptions& options);

// The units of given buckets, whole, in this order. With it a plan that was not made of times can
// be predicted, too.
// buckets  positions of tensors, each in one bucket; no tensor needs one of its own bucket or of a
//          later one
// Requires: as MakeUnits
std::vector<TransferUnit> UnitsOfBuckets(std::span<const TimedTensor> tensors,
                                         const std::vector<std::vector<size_t>>& buckets);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_TRANSFER_UNITS_H_
