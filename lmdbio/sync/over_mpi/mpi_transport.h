// lmdbio/sync/over_mpi/mpi_transport.h - exchanges between ranks by MPI's own calls.
//
// What the papers' helper threads do: MPI_Allreduce, MPI_Gather and MPI_Bcast for rounds that
// block,
// MPI_Iallreduce and its like, tested and slept between, for those that do not. While a call
// blocks,
// MPI spins or yields as it was told to.
//
// Source: dissertation 6.2.2, 6.3.2; Romero et al. 3.1.2; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_

#include <memory>

#include <mpi.h>

#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// Collective over `communicator`, of which it works on duplicates.
// Wait of this transport blocks in MPI until the exchange is over, whatever its limit, and hears of
// a rank that is gone from MPI only; Test never blocks.
// Errors: kInvalidArgument  MPI is not running
//         kUnsupported      it was initialised at a lower level than MPI_THREAD_MULTIPLE: the
// helper
//                           thread may not call it
//         kInternal         MPI failed, in its words
Result<std::unique_ptr<sync::Transport>> MpiTransport(MPI_Comm communicator);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_TRANSPORT_H_
