// lmdbio/sync/over_mpi/mpi_on_device.h - MPI's collectives on memory of GPUs.
//
// Blocking calls: Open MPI takes memory of GPUs in these only, and reads it as memory of the host
// in MPI_Iallreduce, though it answers that it takes such memory.
//
// Source: docs/device_mpi.md.
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_ON_DEVICE_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_ON_DEVICE_H_

#include <cstdint>
#include <memory>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/sync/over_library/blocking_library.h"

namespace lmdbio::sync {

// Collective over `communicator`. Works on a duplicate of it, which is freed with the object, if
// MPI is still running. It takes the values for which MPI has an operation of its own with the
// results of lmdbio: MPI would call any other operation on the host, with addresses of a GPU.
// piece_bytes_max  [8 .. ranks::kPieceBytesMax; the same on every rank] of one call of MPI
// Requires: MPI takes memory of GPUs (mpi_device_memory.h); any thread may call MPI
// Errors: kInternal  MPI failed; has the message of MPI
Result<std::unique_ptr<BlockingLibrary>> MpiOnDevice(
    MPI_Comm communicator, uint64_t piece_bytes_max = ranks::kPieceBytesMax);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_ON_DEVICE_H_
