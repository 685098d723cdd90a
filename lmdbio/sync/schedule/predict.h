// lmdbio/sync/schedule/predict.h - how long an iteration takes with given steps, and at least.
//
// Source: Hashemi et al. 3.1; docs/caramel.md "Prediction".
#ifndef LMDBIO_SYNC_SCHEDULE_PREDICT_H_
#define LMDBIO_SYNC_SCHEDULE_PREDICT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/sync/schedule/transfer_model.h"
#include "lmdbio/sync/schedule/transfer_order.h"
#include "lmdbio/sync/schedule/transfer_units.h"

namespace lmdbio::sync {

struct PredictedIteration {
  int64_t length_ns = 0;  // from the begin of an iteration to that of the next one
  int64_t stall_ns = 0;   // of this, waiting for units
};

// Plays a program and the channel for several iterations, and returns the last. In the long run an
// iteration also takes the time of all its steps, even if units are due so late that the first
// iterations do not show it.
//
// The program submits each unit at its ready time, and stops at its due time until the unit is
// there. A stop delays all that comes later in the program. The channel makes the steps in order,
// each when its unit is submitted, and an iteration after the other.
//
// Times of several ranks are merged, so a unit may be due before one that comes earlier in the
// steps is submitted. Then another rank submits that one, and does not stop before.
// length_ns  of an iteration, on the program clock
// Requires: steps as OrderByDue returns them
// Cost: O(units log units + steps)
PredictedIteration PredictIteration(std::span<const TransferUnit> units,
                                    const std::vector<TransferStep>& steps, int64_t length_ns,
                                    const TransferModel& model);

// The least length of an iteration with any steps. A call costs only its bytes, at the best rate of
// the model, and may be interrupted at any byte. The result is the largest of
//
//  - length_ns plus the greatest lateness if the ready unit that is due first always travels; needs
//    do not count, and neither do units that are due after the iteration
//  - the time of all bytes
//
// Cost: O(units log units)
// Source: W. A. Horn, Some simple scheduling algorithms, 1974; docs/caramel.md "Prediction"
int64_t LowerBound(std::span<const TransferUnit> units, int64_t length_ns,
                   const TransferModel& model);

// Whether a schedule is worth a change: the iteration of the other plan is predicted to take more
// than 1.02 of that of the schedule.
bool IsWorthIt(int64_t schedule_ns, int64_t other_ns);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_PREDICT_H_
