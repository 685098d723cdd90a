// lmdbio/sync/over_wire/wire_trial.h - finds out which algorithm suits the wire.
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

// Collective. Rank 0 says what is tried next, and takes the time. Ends with the size during whose
// trials the time is over; what is larger is done as the largest that was tried.
// Returns: the same on every rank
// Errors: as Wire; kInternal  rank 0 asks for what there is not
Result<MeasuredWire> MeasureWire(const WireJob& job, std::chrono::milliseconds trial_time,
                                 const TriedAllReduce& all_reduce);

// Collective. Rank 0's table becomes everybody's.
// Errors: as Wire; kInvalidArgument  it is none, see CheckWireTable; on every rank
Result<WireTable> ShareWireTable(const WireJob& job, WireTable table);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_
