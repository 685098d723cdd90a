// lmdbio/ranks/mpi/mpi_memory.h - memory shared by the ranks of a host, as an MPI window.
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

// Collective over `communicator`; see Group::AllocateShared. For callers that want a window, and
// for hosts that refuse AllocateHostMemory, whose memory is better: it needs no room in /dev/shm,
// never has a name, and may outlive MPI_Finalize.
// size_bytes  [the same on every rank]
// why_window  the refusal of the host, for the note of the memory and for errors; empty if the
//             caller wants a window
// Requires: the error handler of `communicator` is MPI_ERRORS_RETURN; there are several ranks,
//           because Open MPI takes the window of a lone rank from malloc, which does not clear it
// Errors: kResourceExhausted, kInvalidArgument, kInternal, as Group::AllocateShared
Result<std::unique_ptr<SharedMemory>> AllocateWindowMemory(MPI_Comm communicator,
                                                           uint64_t size_bytes,
                                                           std::string_view why_window);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_MEMORY_H_
