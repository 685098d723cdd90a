// lmdbio/load/reader/block_repair.h - the last resort for a block that cannot be read.
//
// Source: docs/loader.md "Failures".
#ifndef LMDBIO_LOAD_READER_BLOCK_REPAIR_H_
#define LMDBIO_LOAD_READER_BLOCK_REPAIR_H_

#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/files/snapshot_guard.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/plan/read_plan.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// Threads: one at a time.
class BlockRepair {
 public:
  // guard, source, window  borrowed
  // source  of the bytes that the blocks count
  BlockRepair(const SnapshotGuards& guard, const ByteSource& source, Window& window,
              OnError on_error)
      : guard_(guard), source_(source), window_(window), on_error_(on_error) {}

  // Whether the stream may continue after a read has failed for good.
  // Errors: `why`, with OnError::kRaise; kStale  the file was changed, so no part of it can be used
  Status Tolerate(const Error& why) const;

  // Reads `extent` again, in parts that are halved until the unreadable ones are found. These
  // become bad ranges of the slot.
  // slot    number of the slot
  // memory  the memory that extent.at counts from
  // bad_at  added to places in `memory` to get those that the slot's bad ranges count from
  // Errors: as ByteSource::Read, if the slot has more bad ranges than it can hold
  Status Reread(uint64_t slot, MutableBytes memory, const PlannedExtent& extent,
                uint64_t bad_at = 0) const;

 private:
  const SnapshotGuards& guard_;
  const ByteSource& source_;
  Window& window_;
  OnError on_error_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_BLOCK_REPAIR_H_
