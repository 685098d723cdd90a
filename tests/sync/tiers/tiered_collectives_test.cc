// Goal: the collectives of several hosts pass the checks of all collectives; an error on one host
// reaches all hosts.
// Method: ranks are threads, on emulated hosts: consecutive ranks, or every other rank.
#include "lmdbio/sync/tiers/tiered_collectives.h"

#include <chrono>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

using Complaint = std::string;

ranks::SoloHealth& Healthy() {
  static ranks::SoloHealth health;
  return health;
}

std::unique_ptr<Collectives> OverLinks(ranks::Group& group, int known_as,
                                       LinkWire** link = nullptr) {
  auto wire = OpenLinkWire(group, Healthy(), {.known_as = known_as});
  if (!wire) return nullptr;
  if (link != nullptr) *link = wire->get();
  auto made = WireCollectives(std::move(*wire),
                              {.table = OneWireAlgorithm(WireAlgorithm::kRing, 5'000, 3)});
  return made ? std::move(*made) : nullptr;
}

// host  in which this rank is
std::unique_ptr<Collectives> Tiers(ranks::Group& group, int host, LinkWire** link = nullptr) {
  const auto on_host = group.Split(host);
  auto places = ranks::FindHostPlaces(group, **on_host);
  const bool is_root = (*on_host)->rank() == 0;
  const auto same_tier = group.Split(is_root ? 0 : 1);
  auto below = (*on_host)->size() == 1 ? SoloCollectives() : OverLinks(**on_host, group.rank());
  auto above = is_root ? OverLinks(**same_tier, group.rank(), link) : nullptr;
  return TieredCollectives(std::move(*places), group.rank(), std::move(below), std::move(above),
                           {.apart_bytes_max = 10'000});
}

TEST_CASE("Tiers do what any collectives do", "[collective][tiered]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 8);
  const bool are_neighbours = GENERATE(true, false);
  INFO(rank_count << " ranks, " << (are_neighbours ? "neighbours" : "every other rank"));
  const test::CollectiveSizes sizes{.large = {65'528, 200'008}};
  const auto complaints = test::RunCollectiveChecks(
      rank_count,
      [&](ranks::Group& group) {
        return Tiers(group, are_neighbours ? group.rank() / 3 : group.rank() % 2);
      },
      sizes);
  CHECK(complaints == std::vector<Complaint>{});
}

TEST_CASE("Ranks know who is where", "[collective][tiered]") {
  std::vector<Complaint> wrong(5);
  ranks::RunAsThreads({5}, [&](ranks::Group& group) {
    const auto host = group.Split((group.rank() + 1) % 2);
    const auto places = ranks::FindHostPlaces(group, **host);
    if (!places || places->ranks != std::vector<std::vector<int>>{{0, 2, 4}, {1, 3}} ||
        places->host_of != std::vector<int>{0, 1, 0, 1, 0} ||
        places->place_of != std::vector<int>{0, 0, 1, 1, 2}) {
      wrong[static_cast<size_t>(group.rank())] = "something";
    }
  });
  CHECK(wrong == std::vector<Complaint>(5));
}

TEST_CASE("A root that dies is named on all hosts", "[collective][tiered]") {
  constexpr int kDead = 3;
  std::vector<Complaint> heard(6);
  ranks::RunAsThreads({6, 3}, [&](ranks::Group& group) {
    LinkWire* link = nullptr;
    const auto made = Tiers(group, group.rank() / 3, &link);
    static_cast<void>(made->Barrier({}));
    static_cast<void>(group.Barrier());
    auto& mine = heard[static_cast<size_t>(group.rank())];
    if (group.rank() == kDead) link->Sever();
    static_cast<void>(group.Barrier());
    if (group.rank() == kDead) {
      // Its own host learns it from elsewhere.
      made->Stop(Error(ErrorCode::kPeerFailed, "rank 3 on host-1 has ended unexpectedly"));
    }
    const auto got = made->Barrier({});
    mine = got ? "nothing" : got.error().message();
  });
  CHECK(heard == std::vector<Complaint>(6, "rank 3 on host-1 has ended unexpectedly"));
}

}  // namespace
}  // namespace lmdbio::sync
