// tests/campaign/environment_list.h - environments that refuse a job something: memory, devices,
// limits, system calls, names, storage, clocks.
#ifndef LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_LIST_H_
#define LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_LIST_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/campaign/environment_job.h"

namespace lmdbio::test {

// Throws NotHere with errno unless `is_done`.
void Need(bool is_done, std::string_view action);

// The processes that an environment needs, and that end with it.
using Helpers = std::vector<pid_t>;

// Whether the job must do its work there. Otherwise it may give an error, too.
enum class Demand { kRightBytes, kBytesOrError };

struct JobEnvironment {
  std::string name;
  Demand demand = Demand::kBytesOrError;
  // Changes the process that starts the ranks, which has its own mounts and /dev/shm. May be empty.
  std::function<void(JobPlace& place, Helpers& helpers)> enter;
  // Changes the process of a rank. May be empty.
  std::function<void(int rank)> enter_rank;
  // Programs would end before their first line, so they are not tried.
  bool breaks_programs = false;
  // Pages of a map of the database may be lost.
  bool loses_pages = false;
};

// Those without refused system calls, in a fixed order.
std::vector<JobEnvironment> FixedEnvironments();

// Gives this process its own mounts and its own /dev/shm, as far as it may.
// Returns: whether it may
bool TakeOwnMounts();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_LIST_H_
