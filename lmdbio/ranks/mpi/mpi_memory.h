// lmdbio/ranks/mpi/mpi_memory.h - memory shared by the ranks of a host, as a window of MPI's.
//
// Source: dissertation 3.2.1; docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_MPI_MPI_MEMORY_H_
#define LMDBIO_RANKS_MPI_MPI_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include <mpi.h>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// Collective over `communicator`; see Group::AllocateShared. For hosts that refuse
// ranks::AllocateHostMemory, which needs no room in /dev/shm, never has a name, and may outlive
// MPI_Finalize.
// why_window  how the host refused that, for the note of the memory and for errors
// size_bytes  [the same on every rank: AllocateHostMemory has compared them]
// Requires: the error handler of `communicator` is MPI_ERRORS_RETURN; there are several ranks, for
//           Open MPI takes the window of a lone rank from malloc, which does not clear it
// Errors: kResourceExhausted, kInvalidArgument, kInternal, as Group::AllocateShared
Result<std::unique_ptr<ranks::SharedMemory>> AllocateWindowMemory(MPI_Comm communicator,
                                                                  uint64_t size_bytes,
                                                                  std::string_view why_window);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_MEMORY_H_
