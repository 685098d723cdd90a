// lmdbio/sync/schedule/transfer_order.h - the order in which units and their slices travel.
//
// Source: Hashemi et al. 4.3; docs/caramel.md "Steps".
#ifndef LMDBIO_SYNC_SCHEDULE_TRANSFER_ORDER_H_
#define LMDBIO_SYNC_SCHEDULE_TRANSFER_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/sync/schedule/transfer_model.h"
#include "lmdbio/sync/schedule/transfer_units.h"

namespace lmdbio::sync {

// One call: a unit, or a slice of it.
struct TransferStep {
  size_t unit = 0;
  uint64_t begin = 0;  // the first byte
  uint64_t bytes = 0;
  friend bool operator==(const TransferStep&, const TransferStep&) = default;
};

// All three orders have each byte of each unit once, the slices of a unit in the order of their
// bytes. No unit begins before the last step of each unit that it needs.
// Requires: units as MakeUnits returns them, also with other times or in another order without
//           needs
// Threads:  any

// The units one after the other, whole.
std::vector<TransferStep> OrderAsGiven(std::span<const TransferUnit> units);

// Earliest due date first: whenever the channel is free, the ready unit that is due first makes one
// step, equal ones by index. A unit is due with the first unit that needs it. The greatest lateness
// is at most one step above that of any other order of these steps.
// Cost: O((units + steps) log units)
// Source: W. A. Horn, Some simple scheduling algorithms, 1974; docs/caramel.md "Steps"
std::vector<TransferStep> OrderByDue(std::span<const TransferUnit> units,
                                     const TransferModel& model);

// The windows of 4.3, for comparison. Units are placed whole, by size, the largest first:
//
//  1. beside the backward pass, which ends with the last ready time: at the first gap after the
//     unit is ready
//  2. otherwise beside the forward pass: at the last gap before it is due
//  3. the rest, in the same order: behind the last unit beside the backward pass, or before the
//     first one beside the forward pass, where the iteration grows less; if equal, the former
//
// The paper leaves open which of several gaps is taken. A unit that is needed moves before the
// first one that needs it.
// length_ns  of an iteration, on the program clock
// Cost: O(units^2)
// Source: Hashemi et al. 4.3
std::vector<TransferStep> OrderInBins(std::span<const TransferUnit> units,
                                      const TransferModel& model, int64_t length_ns);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_TRANSFER_ORDER_H_
