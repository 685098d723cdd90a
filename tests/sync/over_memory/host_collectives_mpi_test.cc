// The same over memory of MPI's, with processes as ranks.
#include <mpi.h>

#include "lmdbio/sync/over_memory/host_collectives.h"
#include "tests/ranks/launcher/world_group.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

TEST_CASE("HostCollectives over MPI's memory passes the checks of all collectives",
          "[collective]") {
  auto group = test::WorldGroup();
  REQUIRE(group);
  ranks::SoloHealth health;
  auto all =
      HostCollectives(**group, health, {.staging_bytes = 320 << 10, .registered_bytes = 1 << 20});
  REQUIRE(all);
  test::Complaints complaints;
  const test::CollectiveSizes sizes{.small = {0, 8, 40, 1000}, .large = {65'544, 300'008}};
  for (const test::CollectiveCheck& check : test::CollectiveChecks()) {
    check.run(**all, sizes, complaints);
  }
  CHECK(complaints.list() == std::vector<std::string>{});
}

// The memory is abandoned, and MPI_Finalize does not wait for it.
TEST_CASE("HostCollectives over MPI's memory stops", "[collective]") {
  auto group = test::WorldGroup();
  REQUIRE(group);
  ranks::SoloHealth health;
  auto all = HostCollectives(**group, health, {});
  REQUIRE(all);
  test::Complaints complaints;
  test::CheckStop(**all, complaints);
  CHECK(complaints.list() == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::sync
