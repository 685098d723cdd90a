// bench/device_jobs/job_runs.h - jobs in processes of their own, each run once.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_JOB_RUNS_H_
#define LMDBIO_BENCH_DEVICE_JOBS_JOB_RUNS_H_

#include <map>
#include <string>
#include <vector>

#include "bench/device/probe_row.h"
#include "bench/device_jobs/job_spec.h"
#include "lmdbio/base/status.h"

namespace lmdbio::figures {

// Rows go to this descriptor of a process of a job.
inline constexpr int kJobRowsDescriptor = 3;

// The reason for all rows that are missing at the end.
void SayJobError(const Error& error);

// Everything that the processes of a job have sent.
struct JobOutcome {
  std::vector<probe::ProbeRow> rows;
  Error why_missing;
};

// A lost context, a crash or a hang of the driver ends one job.
// Threads: one
class JobRuns {
 public:
  // Samples of a measure. Runs the job, if it was not run yet.
  // seconds_max  for the job
  // Errors: kUnsupported, kResourceExhausted  the machine cannot do that
  //         any                               why the measure has failed
  Result<std::vector<double>> Samples(const JobSpec& spec, const std::string& measure,
                                      double seconds_max);
  // All rows of a measure: one of each rank that has sent it.
  std::vector<probe::ProbeRow> Rows(const JobSpec& spec, const std::string& measure,
                                    double seconds_max);
  // The same of a program that prints rows, as rivals.py does.
  // words  the program, which is looked for in PATH, and its arguments
  // Errors: as Samples
  Result<std::vector<double>> SamplesOfProgram(const std::vector<std::string>& words,
                                               const std::string& measure, double seconds_max);

 private:
  const JobOutcome& OutcomeOf(const JobSpec& spec, double seconds_max);

  std::map<std::string, JobOutcome> outcomes_;  // by the text of the job, or the words
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_JOB_RUNS_H_
