#include "tests/ranks/launcher/launched_threads.h"

#include <cstdlib>

#include "lmdbio/base/check.h"
#include "tests/ranks/launcher/launched_ranks.h"

namespace lmdbio::test {

bool IsLaunched() { return std::getenv("LMDBIO_TEST_LAUNCHED") != nullptr; }

void RunAsThreadsOrLaunched(ranks::ThreadRanks ranks,
                            const std::function<void(ranks::Group& group)>& body) {
  if (!IsLaunched() || ranks.ranks_per_host < ranks.rank_count) {
    return ranks::RunAsThreads(ranks, body);
  }
  RunLaunched(MeetingKind::kHosted, ranks.rank_count,
              [&body](int /*rank*/, Result<std::unique_ptr<ranks::Group>> group) {
                LMDBIO_CHECK(group.has_value());
                body(**group);
              });
}

}  // namespace lmdbio::test
