// lmdbio/sync/tiers/transfer_trial.h - measures what a whole call of AllReduce takes, by its size.
//
// Source: Hashemi et al. 4.2 (a model of the network from aggregations of different sizes);
// docs/caramel.md "Transfer model".
#ifndef LMDBIO_SYNC_TIERS_TRANSFER_TRIAL_H_
#define LMDBIO_SYNC_TIERS_TRANSFER_TRIAL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// The sizes of the measured calls. The smallest is always measured.
constexpr std::array<uint64_t, 8> kTransferTrialBytes = {1 << 10,   4 << 10, 16 << 10, 64 << 10,
                                                         256 << 10, 1 << 20, 4 << 20,  16 << 20};
// Of the trial in Create, about.
constexpr std::chrono::milliseconds kTransferTrialTime{300};
// Calls of each size are made for so long, about, one behind the other; these are the least number
// and the most.
// The median of the last half counts: the first ones may fit into the bucket of a network that
// limits the rate.
constexpr std::chrono::milliseconds kTransferTrialSizeTime{20};
constexpr size_t kTransferTrialCallsMin = 4;
constexpr size_t kTransferTrialCallsMax = 64;

// The time since some moment.
using TransferClock = std::function<std::chrono::nanoseconds()>;

// Collective. Reduces zeros. Rank 0 begins no size for which the time that is left is too short, so
// a slow network ends the trial at a smaller size.
// time   of the trial, about; of rank 0
// clock  of rank 0
// Returns: the times of rank 0, on every rank; empty in a job of one rank
// Errors: as Collectives; kInternal  the ranks made different calls
Result<std::vector<TransferSample>> TryTransfers(Collectives& collectives,
                                                 std::chrono::nanoseconds time,
                                                 const TransferClock& clock);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TIERS_TRANSFER_TRIAL_H_
