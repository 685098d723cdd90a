// lmdbio/sync/over_mpi/mpi_device_memory.h - whether MPI takes memory of a GPU in its calls.
//
// An MPI that knows nothing of GPUs reads such an address as one of the host, and the process ends.
// So MPI is asked at run time, and gets no such address before it has said that it takes them.
//
// Source: docs/device_mpi.md.
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_DEVICE_MEMORY_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_DEVICE_MEMORY_H_

#include <cstdint>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

enum class MpiDeviceMemory : uint8_t {
  kTaken,
  kNotTaken,
  kUnknown,  // this MPI had no question for it when lmdbio was built
};

// Asks MPI, by MPIX_Query_cuda_support of mpi-ext.h. Threads: any
MpiDeviceMemory QueryMpiDeviceMemory();

// The answer, as a sentence: "MPI does not take memory of GPUs (MPIX_Query_cuda_support)".
std::string_view TextOf(MpiDeviceMemory answer);

// For programs that ask MPI to reduce in memory of GPUs.
// Errors: kUnsupported  the answer is no, or unknown; says which
Status CheckMpiDeviceMemory(MpiDeviceMemory answer);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_DEVICE_MEMORY_H_
