// lmdbio/sync/over_wire/wire_trial.h - measures the algorithms of AllReduce, and makes a table.
//
// Rank 0 leads: it searches (wire_search.h) and broadcasts a command for each measurement. All
// ranks run the command together, and the time of rank 0 decides.
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_

#include <chrono>
#include <functional>

#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_choice.h"
#include "lmdbio/sync/over_wire/wire_search.h"

namespace lmdbio::sync {

// Reduces `values` by `choice`.
using TriedAllReduce = std::function<Status(const WireChoice& choice, const Values& values)>;

// The present time.
using TrialClock = std::function<std::chrono::steady_clock::time_point()>;

// Collective. The search of rank 0 holds for all ranks.
// space       of rank 0; the others' is not used
// trial_time  approximate, by the clock
// clock       of this rank; that of rank 0 measures
// Returns: the same on every rank
// Errors: as Wire; kInternal  rank 0 sent a malformed command
Result<MeasuredWire> MeasureWire(const WireJob& job, const WireSearchSpace& space,
                                 std::chrono::milliseconds trial_time,
                                 const TriedAllReduce& all_reduce,
                                 const TrialClock& clock = std::chrono::steady_clock::now);

// Collective. All ranks get the table of rank 0.
// Errors: as Wire; kInvalidArgument  the table is invalid, see CheckWireTable; on every rank
Result<WireTable> ShareWireTable(const WireJob& job, WireTable table);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_TRIAL_H_
