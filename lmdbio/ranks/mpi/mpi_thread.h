// lmdbio/ranks/mpi/mpi_thread.h - who may call MPI.
#ifndef LMDBIO_RANKS_MPI_MPI_THREAD_H_
#define LMDBIO_RANKS_MPI_MPI_THREAD_H_

#include <cstdint>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// From where MPI will be called, beside the program's own calls.
enum class MpiCaller : uint8_t {
  kMainThread,  // the thread that initialised MPI: any level of thread support will do
  kAnyThread,   // a helper thread, whatever the program does: MPI_THREAD_MULTIPLE
  kOneAtATime,  // a helper thread, and the program promises that no other thread is within MPI
                // meanwhile: MPI_THREAD_SERIALIZED
};

// Errors: kUnsupported      MPI was initialised with a lower level; names both levels
//         kInvalidArgument  MPI is not initialised, or is finalized already; kMainThread is said
//                           on another thread
Status CheckMpiThread(MpiCaller caller);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_THREAD_H_
