// lmdbio/sync/over_wire/wire_trial.h - measures the algorithms of AllReduce, and makes a table.
//
// Rank 0 leads: it broadcasts a command for each measurement, and all ranks run it together. The
// time of rank 0 decides. The sizes rise, and each has its best algorithm. From 4 MiB on, the trial
// also measures other chunk sizes with that algorithm.
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_

#include <chrono>
#include <functional>

#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::sync {

// Reduces `values` by `choice`.
using TriedAllReduce = std::function<Status(const WireChoice& choice, const Values& values)>;

struct MeasuredWire {
  WireTable table;
  uint64_t ample_bytes = kUsualAmpleBytes;  // see Collectives
};

// Collective. Ends after the size at which `trial_time` is over. Larger calls use the algorithm of
// the largest size that was measured.
// Returns: the same on every rank
// Errors: as Wire; kInternal  rank 0 sent a malformed command
Result<MeasuredWire> MeasureWire(const WireJob& job, std::chrono::milliseconds trial_time,
                                 const TriedAllReduce& all_reduce);

// Collective. All ranks get the table of rank 0.
// Errors: as Wire; kInvalidArgument  the table is invalid, see CheckWireTable; on every rank
Result<WireTable> ShareWireTable(const WireJob& job, WireTable table);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_
