#include "lmdbio/sync/collective/solo_collectives.h"

#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

TEST_CASE("SoloCollectives does what any collectives do", "[collective]") {
  const auto complaints =
      test::RunCollectiveChecks(1, [](ranks::Group&) { return SoloCollectives(); });
  CHECK(complaints == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::sync
