// lmdbio/mpi/mpi_memory.h - memory shared by the ranks of a host, as a window of MPI's.
//
// Source: dissertation 3.2.1; docs/loader.md "Ranks".
#ifndef LMDBIO_MPI_MPI_MEMORY_H_
#define LMDBIO_MPI_MPI_MEMORY_H_

#include <cstdint>
#include <memory>

#include <mpi.h>

#include "lmdbio/comm/group.h"

namespace lmdbio::mpi {

// Collective over `communicator`; see Group::AllocateShared.
// Requires: the error handler of `communicator` is MPI_ERRORS_RETURN
// Errors: kResourceExhausted, kInvalidArgument, kInternal, as Group::AllocateShared
Result<std::unique_ptr<comm::SharedMemory>> AllocateMpiMemory(MPI_Comm communicator,
                                                              uint64_t size_bytes);

}  // namespace lmdbio::mpi
#endif  // LMDBIO_MPI_MPI_MEMORY_H_
