// lmdbio/ranks/mpi/mpi_group.h - the ranks of an MPI communicator as a group.
//
// Source: dissertation 3.2.1; docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_MPI_MPI_GROUP_H_
#define LMDBIO_RANKS_MPI_MPI_GROUP_H_

#include <memory>

#include <mpi.h>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// Collective over `communicator`. Works on a duplicate, so that no message of the caller's can be
// mistaken for one of ours; failures of MPI come back as errors (MPI_ERRORS_RETURN), but for the
// duplication's own, which goes where `communicator` sends its errors.
// Lifetime: a group that outlives MPI_Finalize may be destroyed, not called.
// Requires: MPI is initialised, with MPI_THREAD_FUNNELED or more if the program has threads; every
//           call on the group comes from the thread that may call MPI, before MPI_Finalize
// Errors: kInvalidArgument  MPI_COMM_NULL, an intercommunicator, MPI not initialised
//         kInternal         MPI failed, in its words
Result<std::unique_ptr<ranks::Group>> MpiGroup(MPI_Comm communicator);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_GROUP_H_
