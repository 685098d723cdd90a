// lmdbio/ranks/mpi/mpi_thread.h - the threads that may call MPI.
#ifndef LMDBIO_RANKS_MPI_MPI_THREAD_H_
#define LMDBIO_RANKS_MPI_MPI_THREAD_H_

#include <cstdint>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// The thread from which lmdbio calls MPI, and the level of thread support that it needs.
enum class MpiCaller : uint8_t {
  kMainThread,  // the thread that initialised MPI: any level
  kAnyThread,   // a helper thread, while the program may call MPI too: MPI_THREAD_MULTIPLE
  kOneAtATime,  // a helper thread, and the program guarantees that no other thread is within MPI
                // meanwhile: MPI_THREAD_SERIALIZED
};

// Errors: kUnsupported      MPI was initialised with a lower level; names both levels
//         kInvalidArgument  MPI is not initialised, or is finalized already; kMainThread is passed
//                           on another thread
Status CheckMpiThread(MpiCaller caller);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_THREAD_H_
