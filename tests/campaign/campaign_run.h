// tests/campaign/campaign_run.h - common to the programs of this folder: seeds, a limit of time for
// each, and findings.
#ifndef LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_RUN_H_
#define LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_RUN_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::test {

// The arguments that all programs take: --first-seed N, --seeds N. The others are left in `rest`.
struct CampaignArguments {
  uint64_t first_seed = 0;
  uint64_t seed_count = 1000;
  std::vector<std::string_view> rest;
};
CampaignArguments ReadArguments(int argc, char** argv);

// Runs `try_seed` for each seed, which returns its finding in a line, or "". A finding is printed
// with its seed. A seed that takes longer than `limit_s` ends the program with 3, after its line.
// folder  its file `seed` has the seed that was begun last, for a caller whose program was ended
// Returns: the number of findings
uint64_t RunSeeds(const CampaignArguments& arguments, const std::filesystem::path& folder,
                  unsigned limit_s, const std::function<std::string(uint64_t seed)>& try_seed);

// Whether the options, the database or a limit explain an error.
bool IsRefusal(ErrorCode code);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_RUN_H_
