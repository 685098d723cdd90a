// lmdbio/sync/on_device/staged_work.h - tensors of a GPU that pass through other memory, chunk by
// chunk, on their way to a call and back.
//
// That memory is pinned memory of the host (staging_ring.h), or an arena (arena_mover.h).
#ifndef LMDBIO_SYNC_ON_DEVICE_STAGED_WORK_H_
#define LMDBIO_SYNC_ON_DEVICE_STAGED_WORK_H_

#include <cstdint>
#include <vector>

#include "lmdbio/device/device_address.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/on_device/staged_chunks.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

struct StagedTensor {
  device::DeviceSpan input;   // empty: the call gets zeros
  device::DeviceSpan output;  // empty: the result is not copied back
  EventPtr ready;             // the input is there and the output is free; null: they are
};

struct StagedWork {
  std::vector<StagedTensor> tensors;  // those of `chunks`
  StagedChunks chunks;                // as large as the memory takes
  DataType type = DataType::kFloat32;
  double prescale = 1;  // of the inputs, in the copy
  // Whether the call reads the zeros of tensors without input; else they may be any values.
  bool needs_zeros = true;
};

struct StagedResult {
  CallOutcome outcome = CallOutcome::kDone;
  EventPtr is_in;  // kDone: the outputs are written; else null
};

enum class CopyWay : uint8_t { kOut, kIn };  // out of the tensors; into them

// The parts of tensors in a chunk that are copied one way, and their places in the chunk.
struct StagedSpans {
  std::vector<device::DeviceSpan> tensors;
  std::vector<uint64_t> offsets;  // [tensors] ascending
  uint64_t size_bytes = 0;        // of all of them
};
StagedSpans SpansOf(const StagedWork& work, CopyWay way, uint64_t chunk);

// Those with an input or an output.
uint64_t TensorCountOf(const StagedWork& work);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_STAGED_WORK_H_
