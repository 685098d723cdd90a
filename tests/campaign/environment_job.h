// tests/campaign/environment_job.h - small jobs whose results are known, for a try in environments
// that refuse things.
#ifndef LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_JOB_H_
#define LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_JOB_H_

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/launcher/launch.h"

namespace lmdbio::test {

// This system cannot have an environment, or the test cannot do its part there, for the reason of
// what().
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The place of one run of a job. An environment may change it.
struct JobPlace {
  std::filesystem::path folder;    // for temporary files, empty
  std::filesystem::path database;  // a folder with data.mdb, and data.mdb.prov if the job wants it
  std::filesystem::path programs;  // of this build
};

// The notes of a job that did all of its work with the right result, in one line.
using JobResult = Result<std::string>;

struct EnvironmentJob {
  std::string name;
  int rank_count = 1;
  bool has_provenance = false;
  bool is_program = false;           // starts a program of this build
  bool has_bare_map = false;         // by liblmdb: a lost page ends the process, as with LMDB
  bool is_refused_anywhere = false;  // its strategy needs the provenance file that it does not have
  // Runs one rank. A wrong result throws std::runtime_error.
  std::function<JobResult(const JobPlace& place, const ranks::Launch& launch)> run;
};

// A loader by each strategy with 1, 2 and 8 ranks, with and without a provenance file; a
// synchronizer with two ranks; the programs that make and inspect databases.
std::vector<EnvironmentJob> EnvironmentJobs();

// Writes the databases of the jobs: FOLDER/plain and FOLDER/provenance.
void WriteJobDatabases(const std::filesystem::path& folder);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_ENVIRONMENT_JOB_H_
