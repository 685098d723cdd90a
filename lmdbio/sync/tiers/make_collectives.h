// lmdbio/sync/tiers/make_collectives.h - the collectives that suit a group.
#ifndef LMDBIO_SYNC_TIERS_MAKE_COLLECTIVES_H_
#define LMDBIO_SYNC_TIERS_MAKE_COLLECTIVES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

// The same on every rank.
struct CollectiveOptions {
  // "auto"     shared memory within hosts; messages between their roots, by what is measured
  // "shm"      shared memory; of one host only
  // "ring", "halving", "direct"  messages between all ranks, by this algorithm for all sizes
  std::string collective = "auto";
  WaitMode wait_mode = WaitMode::kSleep;
  uint64_t chunk_bytes = 0;       // of messages; 0: measured with "auto", else 256 KiB
  uint32_t chunk_depth = 0;       // of messages in flight; 0: 4
  uint64_t registered_bytes = 0;  // where there is shared memory: see Collectives::registered
  std::chrono::milliseconds trial_time{200};  // to measure messages in, about
};

// Collective. A rank alone has SoloCollectives, whatever the name. MPI's own collectives are made
// elsewhere: sync/over_mpi/mpi_collectives.h.
// Lifetime: `health` outlives the collectives; the group is not used afterwards
// Errors: kInvalidArgument    there is no such name; names those that there are
//         kUnsupported        "shm" over several hosts; "mpi"
//         kResourceExhausted  no shared memory
//         kIo                 some rank could not be reached
//         kPeerFailed         another rank failed; says why
//         kInternal           MPI failed
Result<std::unique_ptr<Collectives>> MakeCollectives(ranks::Group& group, ranks::Health& health,
                                                     const CollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TIERS_MAKE_COLLECTIVES_H_
