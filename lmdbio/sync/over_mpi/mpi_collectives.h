// lmdbio/sync/over_mpi/mpi_collectives.h - MPI's own collectives behind our interface.
//
// Every call is two of MPI's: a small MPI_Allreduce of what the ranks mean, then the call itself,
// in pieces where MPI cannot count so far. A Barrier is the first alone, and AllToAll exchanges the
// sizes and meets once more.
//
// The bits are MPI's: on all ranks the same, and the same in every run, as far as MPI keeps to what
// its standard advises. MPI's results are rounded to their type before they are scaled.
//
// Source: docs/collectives.md "MPI"; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_COLLECTIVES_H_

#include <memory>

#include <mpi.h>

#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_thread.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

enum class MpiWaiting : uint8_t {
  // MPI's blocking calls, which spin or yield. A rank that is gone or has stopped is waited for as
  // long as MPI does; Stop is heard of at the next call.
  kBlock,
  // MPI's nonblocking calls: test, sleep, test again; a rank that is gone is found.
  kSleep,
};

struct MpiCollectiveOptions {
  MpiWaiting waiting = MpiWaiting::kSleep;
  ranks::MpiCaller caller = ranks::MpiCaller::kAnyThread;  // who will make the calls
  uint64_t piece_bytes_max =
      ranks::kPieceBytesMax;  // [8 .. ranks::kPieceBytesMax] of one call of MPI's
};

// Collective over `communicator`, of which a duplicate is used. MPI tells nothing of ranks that
// died: `health` does.
// Lifetime: `health` outlives the collectives, which may be destroyed after MPI_Finalize, but not
//           called. After an error, MPI may still write to what the call was about.
// Requires: made on a thread that may call MPI
// Errors: kUnsupported      MPI was not initialised for such a caller, see CheckMpiThread
//         kInvalidArgument  MPI is not running, or the caller is to be this thread and is not the
//                           one that initialised it
//         kInternal         MPI failed, in its words
Result<std::unique_ptr<sync::Collectives>> MpiCollectives(MPI_Comm communicator,
                                                          ranks::Health& health,
                                                          const MpiCollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_COLLECTIVES_H_
