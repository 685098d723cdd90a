#include "lmdbio/ranks/launcher/launched_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/launcher/hosted_meeting.h"
#include "lmdbio/ranks/launcher/linked_group.h"
#include "lmdbio/ranks/launcher/meeting_place.h"
#include "lmdbio/ranks/launcher/rank_watch.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"

namespace lmdbio::ranks {
namespace {

// At least as long as the rendezvous of other links.
constexpr auto kConnectLimitMin = std::chrono::seconds(30);

// The links of a rank to its neighbours in the tree, in both directions.
LinkSpec SpecOf(const TreeNeighbours& neighbours) {
  LinkSpec spec;
  spec.sends_to = neighbours.children;
  if (neighbours.parent) spec.sends_to.push_back(*neighbours.parent);
  spec.receives_from = spec.sends_to;
  return spec;
}

// The own addresses and the open door of this rank.
Result<JobAddresses> OpenOwnDoor() {
  JobAddresses job;
  LMDBIO_TRY(job.own, OwnAddresses());
  LMDBIO_TRY(job.door, PeerDoor::Open(job.own));
  return job;
}

// Brings the addresses of this rank to the meeting, and takes those of its neighbours. A rank that
// cannot listen comes too, so that the others do not wait for it until the limit.
Result<JobAddresses> Meet(MeetingPlace& place, const Launch& launch,
                          std::span<const int> neighbours) {
  Result<JobAddresses> job = OpenOwnDoor();
  const Reachability mine = job ? job->door.reachability() : Reachability();
  LMDBIO_TRY(const MeetingResult met,
             place.Exchange(std::as_bytes(std::span(&mine, 1)), neighbours));
  if (!job) return job;
  job->key = met.key;
  job->of_ranks.resize(static_cast<size_t>(launch.size));
  for (size_t i = 0; i < neighbours.size(); ++i) {
    // A program that has met in the place of a rank may have brought anything.
    const std::optional<Reachability> there = ReachabilityIn(met.entries[i]);
    if (!there) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("rank {} has brought no addresses to the meeting, but other bytes",
                              neighbours[i]));
    }
    job->of_ranks[static_cast<size_t>(neighbours[i])] = *there;
  }
  return job;
}

Result<std::unique_ptr<Group>> Connect(MeetingPlace& place, const Launch& launch) {
  const TreeNeighbours neighbours = LinkedGroup::Neighbours(launch.rank, launch.size);
  const LinkSpec spec = SpecOf(neighbours);
  LMDBIO_TRY(JobAddresses job, Meet(place, launch, spec.sends_to));
  const auto check = [&place] { return place.Check(); };
  LMDBIO_TRY(
      RendezvousResult met,
      ConnectPeers(launch.rank, std::move(job), spec,
                   std::max<std::chrono::milliseconds>(launch.limit, kConnectLimitMin), check));
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(launch.size));
  for (int rank = 0; rank < launch.size; ++rank) names.push_back(fmt::format("rank {}", rank));
  LMDBIO_TRY(auto links, PeerLinks::Adopt(std::move(met), std::move(names)));
  auto group = std::make_unique<LinkedGroup>(launch.rank, launch.size, std::move(links), check);
  LMDBIO_TRY_VOID(group->FindHosts());
  LMDBIO_TRY(auto watch_links, PeerLinks::Open(*group, spec));
  LMDBIO_TRY(std::shared_ptr<RankWatch> watch,
             ForAll(*group, RankWatch::Start(std::move(watch_links), spec.sends_to)));
  group->WatchBy(std::move(watch));
  return group;
}

Result<std::unique_ptr<Group>> MakeGroup(MeetingPlace& place, const Launch& launch) {
  Result<std::unique_ptr<Group>> group = Connect(place, launch);
  if (group) {
    place.Finish();
  } else {
    place.GiveUp(group.error());
  }
  return group;
}

}  // namespace

Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch) {
  if (launch.size == 1) return SoloGroup();
  LMDBIO_TRY(const auto place, OpenHostedMeeting(launch));
  return MakeGroup(*place, launch);
}

Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch, KeyValueStore store) {
  if (launch.size == 1) return SoloGroup();
  const auto place = MakeStoreMeeting(launch, std::move(store));
  return MakeGroup(*place, launch);
}

uint64_t NextMeetingNumber() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
}

}  // namespace lmdbio::ranks
