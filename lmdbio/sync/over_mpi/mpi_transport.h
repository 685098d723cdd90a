// lmdbio/sync/over_mpi/mpi_transport.h - exchanges between ranks by calls of MPI.
//
// The helper threads of the papers work in this way. Blocking rounds call MPI_Allreduce, MPI_Gather
// and MPI_Bcast, in which MPI spins or yields. Other rounds call the nonblocking variants, and
// sleep between two tests.
//
// Source: dissertation 6.2.2, 6.3.2; Romero et al. 3.1.2; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include <mpi.h>

#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// Collective over `communicator`. Works on duplicates of it. Wait of this transport ignores its
// limit: it blocks in MPI until the exchange is over, and only MPI can detect that a rank is gone.
// Test never blocks.
// tree_arity  as Ranks, the same on every rank. The coordinator "hierarchical" needs that of its
//             SyncOptions
// Errors: kInvalidArgument  MPI is not running
//         kUnsupported      MPI was initialised at a lower level than MPI_THREAD_MULTIPLE, so the
//                           helper thread may not call it
//         kInternal         MPI failed; has the message of MPI
Result<std::unique_ptr<Transport>> MpiTransport(MPI_Comm communicator, uint32_t tree_arity = 0);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_
