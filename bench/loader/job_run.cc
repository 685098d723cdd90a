#include "bench/loader/job_run.h"

#include <algorithm>
#include <array>

#include <mpi.h>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/mpi/mpi_group.h"

namespace lmdbio::tools {
namespace {

bool IsSet(const char* name) { return ranks::EnvironmentVariable(name).has_value(); }

// The variables by which the processes of an MPI job know that they are some.
constexpr std::array kOfMpi = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"};

}  // namespace

bool JobRun::IsLaunched() {
  if (std::any_of(kOfMpi.begin(), kOfMpi.end(), IsSet)) return false;
  return IsSet("RANK") || IsSet("WORLD_SIZE") || IsSet("SLURM_PROCID");
}

JobRun::JobRun(int& argc, char**& argv) {
  if (!IsLaunched()) {
    mpi_.emplace(argc, argv);
    return;
  }
  const Result<ranks::Launch> launch = ranks::ReadLaunch();
  if (!launch || launch->rank == 0) return;  // Ranks returns the error
  SilenceStreams();
}

Result<std::unique_ptr<ranks::Group>> JobRun::Ranks() {
  if (!IsLaunched()) return ranks::MpiGroup(MPI_COMM_WORLD);
  LMDBIO_TRY(ranks::Launch launch, ranks::ReadLaunch());
  launch.meeting = ranks::NextMeetingNumber();
  return ranks::LaunchedGroup(launch);
}

std::string JobRun::WaitMode() { return IsLaunched() ? "none" : MpiWaitMode(); }

}  // namespace lmdbio::tools
