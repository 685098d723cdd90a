// lmdbio/ranks/mpi/mpi_calls.h - MPI calls with lmdbio's errors, and for any number of bytes.
#ifndef LMDBIO_RANKS_MPI_MPI_CALLS_H_
#define LMDBIO_RANKS_MPI_MPI_CALLS_H_

#include <cstdint>
#include <string_view>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::ranks {

// Success, or "CALL: MPI's message for `code`".
// Errors: kResourceExhausted  MPI_ERR_NO_MEM
//         kInvalidArgument    MPI_ERR_RMA_SHARED: the ranks do not share memory
//         kInternal           any other code
Status MpiStatus(int code, std::string_view call);

// Whether MPI may be called: after MPI_Init, before MPI_Finalize.
bool IsMpiRunning();

// MPI counts in int, and some implementations multiply the count by the number of ranks in int. So
// one MPI call moves at most this many bytes, of all ranks together.
constexpr uint64_t kPieceBytesMax = uint64_t{1} << 30;

// MPI_Bcast of any number of bytes. Collective.
// piece_bytes_max  [1 .. kPieceBytesMax; the same on every rank]
// Errors: as MpiStatus
Status BroadcastInPieces(MPI_Comm communicator, int root, MutableBytes bytes,
                         uint64_t piece_bytes_max = kPieceBytesMax);

// MPI_Allgather of any number of bytes. Collective.
// all  [the number of ranks times mine.size()]
// piece_bytes_max  [1 .. kPieceBytesMax; the same on every rank] of one rank's bytes
// Errors: as MpiStatus
Status AllGatherInPieces(MPI_Comm communicator, Bytes mine, MutableBytes all,
                         uint64_t piece_bytes_max = kPieceBytesMax);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_CALLS_H_
