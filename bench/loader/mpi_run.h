// bench/loader/mpi_run.h - MPI for a program that runs under mpirun or alone.
#ifndef LMDBIO_BENCH_LOADER_MPI_RUN_H_
#define LMDBIO_BENCH_LOADER_MPI_RUN_H_

#include <string>

namespace lmdbio::tools {

// The threads of the program that may call MPI.
enum class MpiThreads { kMain, kAll };

// Initialises MPI at MPI_THREAD_FUNNELED or, if MPI provides it, MPI_THREAD_MULTIPLE. The
// destructor finalizes it. Only rank 0 keeps its standard streams; errors of other ranks reach rank
// 0 as Errors.
class MpiRun {
 public:
  MpiRun(int& argc, char**& argv, MpiThreads threads = MpiThreads::kMain);
  ~MpiRun();
  MpiRun(const MpiRun&) = delete;
  MpiRun& operator=(const MpiRun&) = delete;
};

// Leads standard output and standard error to /dev/null. Whoever reads the originals sees their end
// when the process ends. Call it once.
void SilenceStreams();

// The wait mode of MPI: "spin", "yield" or "unknown". All figures of several ranks depend on it.
std::string MpiWaitMode();

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_MPI_RUN_H_
