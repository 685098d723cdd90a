// lmdbio/sync/over_mpi/mpi_collectives.h - the collectives of MPI behind the interface Collectives.
//
// Every call makes two calls of MPI. A small MPI_Allreduce compares the tags and sizes of the
// ranks. Then MPI moves the data, in several calls if the count exceeds the limit of MPI. A Barrier
// is the first call alone. AllToAll also exchanges the sizes of the parts, and compares them.
//
// MPI decides the bits of a reduction. They are the same on all ranks and in every run, if MPI
// follows the advice of its standard. A result is rounded to its type before it is scaled.
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
  // Blocking calls of MPI, which spin or yield. Only MPI can detect that a rank is gone. Stop takes
  // effect at the next call.
  kBlock,
  // Nonblocking calls of MPI: tests with yields of the core while data can be expected to move,
  // then with sleeps. The health check detects that a rank is gone.
  kSleep,
};

struct MpiCollectiveOptions {
  MpiWaiting waiting = MpiWaiting::kSleep;
  ranks::MpiCaller caller = ranks::MpiCaller::kAnyThread;  // the thread that makes the calls
  uint64_t piece_bytes_max =
      ranks::kPieceBytesMax;  // [8 .. ranks::kPieceBytesMax] of one call of MPI
};

// Collective over `communicator`. Works on a duplicate of it. MPI does not report dead ranks, so
// the calls check `health` while they wait.
// Lifetime: `health` outlives the collectives. They may be destroyed after MPI_Finalize, but not
//           called. After an error, MPI may still write to the memory of the call
// Requires: made on a thread that may call MPI
// Errors: kUnsupported      MPI was not initialised for such a caller, see CheckMpiThread
//         kInvalidArgument  MPI is not running; or only this thread may call it, and this thread
//                           has not initialised MPI
//         kInternal         MPI failed; has the message of MPI
Result<std::unique_ptr<Collectives>> MpiCollectives(MPI_Comm communicator, ranks::Health& health,
                                                    const MpiCollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_COLLECTIVES_H_
