// lmdbio/sync/tiers/make_collectives.h - makes the collectives that suit a group.
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
  // "auto"     shared memory within hosts; between their roots the algorithm that a trial found
  //            fastest for the size
  // "shm"      shared memory; for one host only
  // "ring", "halving", "direct"  messages between all ranks, by this algorithm for all sizes
  std::string collective = "auto";
  // The ranks of each host that reduce large values between hosts, each its part. [> 0]
  uint32_t host_roots = 1;
  // With "auto", one algorithm between roots for all sizes, so that Collectives::is_reproducible.
  bool is_reproducible = false;
  WaitMode wait_mode = WaitMode::kSleep;
  uint64_t chunk_bytes = 0;                   // of messages; 0: measured
  uint32_t chunk_depth = 0;                   // messages in flight; 0: measured
  uint64_t registered_bytes = 0;              // size of Collectives::registered, with shared memory
  std::chrono::milliseconds trial_time{200};  // of the measurements, about
};

// Collective. A job of one rank gets SoloCollectives for any name. sync/over_mpi/mpi_collectives.h
// makes the collectives of MPI.
// Lifetime: `health` outlives the collectives; the group is not used afterwards
// Errors: kInvalidArgument    unknown name; the message lists the valid ones. Several roots with
//                             another name than "auto", or on a host with fewer ranks
//         kUnsupported        "shm" over several hosts; "mpi"
//         kResourceExhausted  no shared memory
//         kIo                 a rank cannot be reached
//         kPeerFailed         another rank failed; has its message
//         kInternal           MPI failed
Result<std::unique_ptr<Collectives>> MakeCollectives(ranks::Group& group, ranks::Health& health,
                                                     const CollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TIERS_MAKE_COLLECTIVES_H_
