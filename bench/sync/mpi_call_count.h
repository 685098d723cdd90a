// bench/sync/mpi_call_count.h - how often this process calls MPI to talk to other ranks.
//
// Counted by MPI's profiling interface, so whoever is measured cannot leave anything out.
#ifndef LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_
#define LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_

#include <cstdint>

namespace lmdbio::bench {

// Collectives and messages that were begun since the program's start; of any thread.
uint64_t MpiCallCount();

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_MPI_CALL_COUNT_H_
