// tests/campaign/kills/kills_rank.h - one rank of a job that may lose a rank.
#ifndef LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_RANK_H_
#define LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_RANK_H_

#include <cstdint>
#include <string>

#include "lmdbio/ranks/launcher/launch.h"
#include "tests/campaign/kills/kills_case.h"
#include "tests/campaign/kills/kills_log.h"

namespace lmdbio::test {

// Does the work of a rank in this process, from the meeting to the end of its objects, and logs it.
// The victim arms a timer of the kernel that sends the signal, so it comes at its instant whatever
// the rank does then.
// state  of the stream, at which the job begins; "": at the first record
void PlayKillRank(const KillJob& job, const KillRun& run, const std::string& state,
                  const ranks::Launch& launch, KillLog& log);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_RANK_H_
