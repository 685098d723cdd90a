// tests/campaign/kills/kills_job.h - the processes of a run that may lose a rank, and the
// judgement of those that survive.
#ifndef LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_JOB_H_
#define LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_JOB_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/campaign/kills/kills_case.h"
#include "tests/campaign/kills/kills_log.h"

namespace lmdbio::test {

struct KillLimits {
  double error_s = 5;  // a survivor has its error so long after the signal, and closes in as long
  double patience_s = 8;  // a survivor without an error, or that does not close, is given up then
  double run_s = 60;      // of a run without a signal
};

// The end of a run.
struct KillRunResult {
  bool was_signalled = false;
  bool is_refused = false;  // options contradict each other
  std::vector<std::string> findings;
};

// Starts the ranks of a run as processes, which meet as those of a launcher, waits for their end,
// and judges them. Nothing runs when it returns.
// Requires: no other thread runs
KillRunResult RunKillJob(const KillJob& job, const KillRun& run, const std::string& state,
                         const KillLimits& limits, KillLogs& logs);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_JOB_H_
