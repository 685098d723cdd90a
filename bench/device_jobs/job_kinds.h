// bench/device_jobs/job_kinds.h - the work of ranks, by the kind of their job.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_JOB_KINDS_H_
#define LMDBIO_BENCH_DEVICE_JOBS_JOB_KINDS_H_

#include <optional>
#include <span>
#include <string_view>

#include "bench/device_jobs/job_rank.h"
#include "lmdbio/base/status.h"

namespace lmdbio::figures {

struct JobKind {
  std::string_view name;
  // Plays one rank. An error is the reason for the rows that are missing.
  Status (*play)(JobRank& rank);
};

// "reduce"   an AllReduce through a synchronizer: variant "placed" or "staged"
// "serial"   copy out, sum on the host, copy in, one after the other
// "wire"     an AllReduce over messages: variant "ring memory gpu", "halving loopback host", ...
// "step"     the host's time of an iteration whose gradients are not ready yet
// "overlap"  an iteration with emulated kernels, and its two halves alone
// "kill"     the last rank kills itself
std::span<const JobKind> KindsOfJobs();

Status PlayReduce(JobRank& rank);
Status PlaySerial(JobRank& rank);
Status PlayWire(JobRank& rank);
Status PlayStep(JobRank& rank);
Status PlayOverlap(JobRank& rank);
Status PlayKill(JobRank& rank);

// Plays a rank of a job, or all of them as threads, if JobRuns has made the command line.
// Returns the exit code.
std::optional<int> PlayJobIfAsked(int argc, char** argv);

inline constexpr const char* kJobWord = "device-job";

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_JOB_KINDS_H_
