// lmdbio/ranks/launcher/launch.h - what a launcher told this rank: its number, and where to meet.
//
// torchrun and srun start ranks without MPI. They tell each rank its number and the number of ranks
// in environment variables. This reads them. It opens nothing and sends nothing.
//
//   RANK, WORLD_SIZE                  of torchrun
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS
//                                     of srun, if RANK and WORLD_SIZE are not set
//   MASTER_ADDR, MASTER_PORT          the ranks meet at this host, at one of the ports behind it
//   SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, SLURM_JOB_ID
//                                     the same of srun, if MASTER_ADDR and MASTER_PORT are not set
//   SLURM_JOB_ID with SLURM_STEP_ID, TORCHELASTIC_RUN_ID, LMDBIO_JOB_SECRET
//                                     tell the job from others that meet at the same place
//   LMDBIO_MEETING                    HOST:PORT in place of these
//   LMDBIO_MEETING_LIMIT_S            how long a rank waits for the others
//
// Source: docs/launchers.md "Variables".
#ifndef LMDBIO_RANKS_LAUNCHER_LAUNCH_H_
#define LMDBIO_RANKS_LAUNCHER_LAUNCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

constexpr auto kMeetingLimit = std::chrono::seconds(300);

// The place of this process in its job.
struct Launch {
  int rank = 0;
  int size = 1;
  // Rank 0 listens at the first of these ports that is free. Unused if size is 1.
  std::string host;
  uint16_t first_port = 0;
  uint16_t port_count = 1;
  // Differs between jobs, and is the same on all ranks of one.
  uint64_t job = 0;
  // The number of this meeting among the meetings of the process. Ranks that make the same calls
  // have the same numbers.
  uint64_t meeting = 0;
  std::chrono::milliseconds limit = kMeetingLimit;
};

// Returns the value of a variable; nothing if it is not set. An empty value counts as not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;

// The variables of this process.
std::optional<std::string> EnvironmentVariable(const char* name);

// Reads the launch of this process. The number of the meeting is 0.
// Errors: kInvalidArgument  no launcher has set its variables, or only some of them; a value is not
//                           a number, or out of range; names the variables
Result<Launch> ReadLaunch(const Variables& variables = EnvironmentVariable);

// The first host of a list in Slurm's syntax: "node07" of "node[07-09,12],gpu1".
// Errors: kInvalidArgument  not such a list
Result<std::string> FirstHostOf(std::string_view slurm_list);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_LAUNCH_H_
