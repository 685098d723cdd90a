// bench/sync/mpi_call_count.h - counts the communication calls of this process to MPI.
//
// The profiling interface of MPI counts them, so the count includes calls by other libraries.
#ifndef LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_
#define LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_

#include <cstdint>

namespace lmdbio::bench {

// Collectives and messages that were begun since the program's start; of any thread.
uint64_t MpiCallCount();

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_
