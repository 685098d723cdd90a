// bench/loader/mpi_run.h - a program under mpirun, or alone.
#ifndef LMDBIO_BENCH_LOADER_MPI_RUN_H_
#define LMDBIO_BENCH_LOADER_MPI_RUN_H_

#include <string>

namespace lmdbio::tools {

// Which threads of the program may call MPI.
enum class MpiThreads { kMain, kAll };

// MPI for the life of the object: initialises it (at MPI_THREAD_FUNNELED or, if MPI has it, at
// MPI_THREAD_MULTIPLE), ends it. Only rank 0 keeps its standard streams; what other ranks have to
// say reaches rank 0 as an error.
class MpiRun {
 public:
  MpiRun(int& argc, char**& argv, MpiThreads threads = MpiThreads::kMain);
  ~MpiRun();
  MpiRun(const MpiRun&) = delete;
  MpiRun& operator=(const MpiRun&) = delete;
};

// How MPI waits: "spin", "yield", or "unknown". Every figure of several ranks depends on it.
std::string MpiWaitMode();

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_MPI_RUN_H_
