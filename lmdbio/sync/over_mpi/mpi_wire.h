// lmdbio/sync/over_mpi/mpi_wire.h - a Wire of messages of MPI, for networks that MPI supports best.
// A rank tests while it waits, with yields and then with sleeps (ranks/mpi/mpi_waiter.h).
//
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_WIRE_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_WIRE_H_

#include <memory>

#include <mpi.h>

#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/sync/collective/wire.h"

namespace lmdbio::sync {

struct MpiWireOptions {
  uint64_t piece_bytes_max = ranks::kPieceBytesMax;  // [1 .. ranks::kPieceBytesMax] of one message
};

// Collective over `communicator`. Works on a duplicate of it. MPI does not report dead ranks, so
// the calls check `health` while they wait.
// Lifetime: `health` outlives the wire. The wire may be destroyed after MPI_Finalize, but not
//           called. After an error, MPI may still write to the memory of a receive
// Requires: the thread that calls the wire may call MPI, see CheckMpiThread
// Errors: kInternal  MPI failed; has the message of MPI
Result<std::unique_ptr<Wire>> MpiWire(MPI_Comm communicator, ranks::Health& health,
                                      const MpiWireOptions& options = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_WIRE_H_
