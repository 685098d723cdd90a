// lmdbio/ranks/mpi/mpi_group.h - the ranks of an MPI communicator as a group.
//
// Source: dissertation 3.2.1; docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_MPI_MPI_GROUP_H_
#define LMDBIO_RANKS_MPI_MPI_GROUP_H_

#include <memory>

#include <mpi.h>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// Collective over `communicator`. MPI tells the ranks their addresses. From then on collective
// calls go over links of their own, and the ranks watch each other: one that ends or is stopped is
// an error on all others within 5 s. Ranks that cannot have links use MPI alone, with a note.
// Uses a duplicate, so that messages of the caller and of lmdbio cannot be confused. Failures of
// MPI are returned as errors (MPI_ERRORS_RETURN), except a failure of the duplication, which goes
// to the error handler of `communicator`.
// Lifetime: a group that outlives MPI_Finalize may be destroyed, but not called.
// Requires: MPI is initialised, with MPI_THREAD_FUNNELED or more if the program has threads; every
//           call on the group comes from the thread that may call MPI, before MPI_Finalize
// Errors: kInvalidArgument  MPI_COMM_NULL, an intercommunicator, MPI not initialised
//                           LMDBIO_RANK_SILENCE_LIMIT_MS has no valid value
//         kPeerFailed       not all ranks have called this within 300 s; another rank has failed
//         kResourceExhausted  no descriptors, no thread
//         kInternal         MPI failed, with its message
Result<std::unique_ptr<Group>> MpiGroup(MPI_Comm communicator);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_GROUP_H_
