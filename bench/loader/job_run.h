// bench/loader/job_run.h - the ranks of a program that runs alone, under mpirun, torchrun or srun.
#ifndef LMDBIO_BENCH_LOADER_JOB_RUN_H_
#define LMDBIO_BENCH_LOADER_JOB_RUN_H_

#include <memory>
#include <optional>
#include <string>

#include "bench/loader/mpi_run.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

// Only rank 0 keeps its standard streams; errors of other ranks reach rank 0 as Errors.
class JobRun {
 public:
  // Initialises MPI, unless torchrun or srun has started the program, and MPI's part of srun has
  // not.
  JobRun(int& argc, char**& argv);

  // Whether the program runs without MPI, as a rank of a launcher.
  static bool IsLaunched();

  // Collective. All ranks of the job.
  // Errors: as MpiGroup or LaunchedGroup
  static Result<std::unique_ptr<ranks::Group>> Ranks();

  // As MpiWaitMode; "none" without MPI.
  static std::string WaitMode();

 private:
  std::optional<MpiRun> mpi_;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_JOB_RUN_H_
