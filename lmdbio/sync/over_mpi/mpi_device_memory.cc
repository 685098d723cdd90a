#include "lmdbio/sync/over_mpi/mpi_device_memory.h"

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <fmt/format.h>

namespace lmdbio::sync {

// Open MPI and its descendants declare the question with this macro.
MpiDeviceMemory QueryMpiDeviceMemory() {
#ifdef MPIX_CUDA_AWARE_SUPPORT
  return MPIX_Query_cuda_support() != 0 ? MpiDeviceMemory::kTaken : MpiDeviceMemory::kNotTaken;
#else
  return MpiDeviceMemory::kUnknown;
#endif
}

std::string_view TextOf(MpiDeviceMemory answer) {
  switch (answer) {
    case MpiDeviceMemory::kTaken:
      return "MPI takes memory of GPUs (MPIX_Query_cuda_support)";
    case MpiDeviceMemory::kNotTaken:
      return "MPI does not take memory of GPUs (MPIX_Query_cuda_support)";
    default:
      return "MPI does not say whether it takes memory of GPUs (no MPIX_Query_cuda_support)";
  }
}

Status CheckMpiDeviceMemory(MpiDeviceMemory answer) {
  if (answer == MpiDeviceMemory::kTaken) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("device_collective: 'mpi': {}; use 'auto', whose messages pass through "
                          "pinned memory of the host",
                          TextOf(answer)));
}

}  // namespace lmdbio::sync
