// Goal: a rank that is killed or stopped at any moment of Create or Shutdown is an error on all
// others within 5 s, which names it.
#include <signal.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/ranks/launcher/struck_ranks.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using test::StrikeAll;
using test::SyncJob;

Status UseSynchronizer(ranks::Group& group, const SyncOptions& options) {
  LMDBIO_TRY(const auto synchronizer, Synchronizer::Create(group, options, {}));
  std::vector<float> values(5, 1.0F);
  LMDBIO_TRY_VOID(SyncJob::Sum(*synchronizer, "a", values));
  return synchronizer->Shutdown();
}

TEST_CASE("A rank that is killed while others create a synchronizer is named within 5 s",
          "[sync][deadline]") {
  SyncOptions options;
  options.coordinator = GENERATE("topo", "caramel");
  const auto script = [&](ranks::Group& group) { return UseSynchronizer(group, options); };
  CHECK(StrikeAll(3, SIGKILL, 2, script) == std::vector<std::string>());
}

TEST_CASE("A rank that is stopped while others create a synchronizer is named within 5 s",
          "[sync][deadline]") {
  REQUIRE(::setenv("LMDBIO_RANK_SILENCE_LIMIT_MS", "1000", 1) == 0);
  const SyncOptions options;
  const auto script = [&](ranks::Group& group) { return UseSynchronizer(group, options); };
  CHECK(StrikeAll(3, SIGSTOP, 9, script) == std::vector<std::string>());
  ::unsetenv("LMDBIO_RANK_SILENCE_LIMIT_MS");
}

}  // namespace
}  // namespace lmdbio::sync
