#include "lmdbio/collective/solo_collectives.h"

#include "tests/collective/collective_checks.h"
#include "tests/support/catch.h"

namespace lmdbio::collective {
namespace {

TEST_CASE("SoloCollectives does what any collectives do", "[collective]") {
  const auto complaints =
      test::RunCollectiveChecks(1, [](comm::Group&) { return SoloCollectives(); });
  CHECK(complaints == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::collective
