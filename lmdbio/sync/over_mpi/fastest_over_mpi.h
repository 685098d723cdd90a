// lmdbio/sync/over_mpi/fastest_over_mpi.h - the faster of two ways to reduce over MPI's network.
//
//   MPI's collectives   nonblocking; MPI chooses the algorithm, and may use the network's hardware
//   MPI's messages      the algorithms of sync/over_wire; sums are taken chunk by chunk while the
//                       next chunks arrive
//
// Which one is faster depends on the MPI and its network. So a trial decides when the collectives
// are made. Neither way blocks in MPI: a rank that is gone is found.
//
// Source: docs/collectives.md "MPI".
#ifndef LMDBIO_SYNC_OVER_MPI_FASTEST_OVER_MPI_H_
#define LMDBIO_SYNC_OVER_MPI_FASTEST_OVER_MPI_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include <mpi.h>

#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/mpi/mpi_thread.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

struct OverMpiOptions {
  ranks::MpiCaller caller = ranks::MpiCaller::kAnyThread;  // the thread that makes the calls
  // Of messages, as WireCollectiveOptions
  uint64_t chunk_bytes = 0;
  uint32_t chunk_depth = 0;
  std::chrono::milliseconds trial_time{200};  // approximate, of the algorithms over messages
};

// Collective over `communicator`. Works on duplicates of it. Description says which way was chosen,
// with the times of the trial.
// Lifetime, Requires, Errors: as MpiCollectives
// Cost: trial_time, and 16 reductions of 1 MiB or 4 MiB
Result<std::unique_ptr<Collectives>> FastestOverMpi(MPI_Comm communicator, ranks::Health& health,
                                                    const OverMpiOptions& options = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_FASTEST_OVER_MPI_H_
