// tests/campaign/campaign_databases.h - databases of all sizes and shapes, written once.
#ifndef LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_DATABASES_H_
#define LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_DATABASES_H_

#include <filesystem>
#include <string>
#include <vector>

namespace lmdbio::test {

enum class DatabaseScale {
  kSmall,  // up to 10^4 records, 60 MB in all
  kLarge,  // up to 10^6 records, 900 MB
  kHuge,   // up to 10^7 records, 1.3 GB
};

struct CampaignDatabase {
  std::string name;
  std::filesystem::path data_file;
};

// The databases in `folder`, which is made. Those that are there already are not written again.
// Throws std::runtime_error, as TinyDb.
std::vector<CampaignDatabase> CampaignDatabases(const std::filesystem::path& folder,
                                                DatabaseScale scale);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_CAMPAIGN_DATABASES_H_
