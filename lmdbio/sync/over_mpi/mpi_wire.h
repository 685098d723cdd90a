// lmdbio/sync/over_mpi/mpi_wire.h - a wire of MPI's messages: the algorithms of lmdbio/collective
// over the network that MPI knows best. Waits asleep, see mpi_waiter.h.
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

// Collective over `communicator`, of which a duplicate is used. MPI tells nothing of ranks that
// died: `health` does.
// Lifetime: `health` outlives the wire; a wire that outlives MPI_Finalize may be destroyed, not
//           called. After an error, MPI may still write to what was to be received.
// Requires: whoever calls the wire may call MPI, see CheckMpiThread
// Errors: kInternal  MPI failed, in its words
Result<std::unique_ptr<sync::Wire>> MpiWire(MPI_Comm communicator, ranks::Health& health,
                                            const MpiWireOptions& options = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_WIRE_H_
