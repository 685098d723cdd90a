#include "lmdbio/ranks/linked/connected_group.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/linked/rank_watch.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"

namespace lmdbio::ranks {

Result<std::chrono::milliseconds> ReadRankSilenceLimit() {
  constexpr const char* kName = "LMDBIO_RANK_SILENCE_LIMIT_MS";
  const char* const text = std::getenv(kName);
  if (text == nullptr || *text == 0) return kRankSilenceLimit;
  int limit_ms = 0;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, limit_ms);
  const bool is_number = read.ec == std::errc() && read.ptr == end;
  if (is_number && (limit_ms == 0 || (limit_ms >= 500 && limit_ms <= 3'600'000))) {
    return std::chrono::milliseconds(limit_ms);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is '{}'; expected 0, or 500 to 3600000", kName, text));
}

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
// silence_limit  is set
Result<JobAddresses> OpenOwnDoor(std::chrono::milliseconds& silence_limit) {
  LMDBIO_TRY(silence_limit, ReadRankSilenceLimit());
  JobAddresses job;
  LMDBIO_TRY(job.own, OwnAddresses());
  LMDBIO_TRY(job.door, PeerDoor::Open(job.own));
  return job;
}

// Brings the addresses of this rank to the meeting, and takes those of its neighbours. A rank that
// cannot listen comes too, so that the others do not wait for it until the limit.
Result<JobAddresses> Meet(MeetingPlace& place, const MeetingSeat& seat,
                          std::span<const int> neighbours,
                          std::chrono::milliseconds& silence_limit) {
  Result<JobAddresses> job = OpenOwnDoor(silence_limit);
  const Reachability mine = job ? job->door.reachability() : Reachability();
  LMDBIO_TRY(const MeetingResult met,
             place.Exchange(std::as_bytes(std::span(&mine, 1)), neighbours));
  if (!job) return job;
  job->key = met.key;
  job->of_ranks.resize(static_cast<size_t>(seat.size));
  for (size_t i = 0; i < neighbours.size(); ++i) {
    // A program that has met in the place of a rank may have brought anything.
    const std::optional<Reachability> there = ReachabilityIn(met.entries[i]);
    if (!there) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("rank {} has brought no addresses to the meeting, but other bytes",
                              neighbours[i]));
    }
    if (there->address_count == 0) {
      return Fail(ErrorCode::kIo, fmt::format("rank {} cannot listen", neighbours[i]));
    }
    job->of_ranks[static_cast<size_t>(neighbours[i])] = *there;
  }
  return job;
}

Result<std::unique_ptr<LinkedGroup>> Connect(MeetingPlace& place, const MeetingSeat& seat) {
  const TreeNeighbours neighbours = LinkedGroup::Neighbours(seat.rank, seat.size);
  const LinkSpec spec = SpecOf(neighbours);
  std::chrono::milliseconds silence_limit{0};
  LMDBIO_TRY(JobAddresses job, Meet(place, seat, spec.sends_to, silence_limit));
  const auto limit = std::max<std::chrono::milliseconds>(seat.limit, kConnectLimitMin);
  // Until the ranks watch each other, a rank that is stopped is noticed by its lateness alone.
  const auto check = [&place, limit, until = std::chrono::steady_clock::now() + limit]() -> Status {
    if (std::chrono::steady_clock::now() < until) return place.Check();
    return Fail(ErrorCode::kPeerFailed, fmt::format("not all ranks have connected within {} s",
                                                    std::chrono::duration<double>(limit).count()));
  };
  LMDBIO_TRY(RendezvousResult met, ConnectPeers(seat.rank, std::move(job), spec, limit, check));
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(seat.size));
  for (int rank = 0; rank < seat.size; ++rank) names.push_back(fmt::format("rank {}", rank));
  LMDBIO_TRY(auto links, PeerLinks::Adopt(std::move(met), std::move(names)));
  auto group = std::make_unique<LinkedGroup>(seat.rank, seat.size, std::move(links), check);
  LMDBIO_TRY_VOID(group->FindHosts());
  LMDBIO_TRY(auto watch_links, PeerLinks::Open(*group, spec));
  LMDBIO_TRY(
      std::shared_ptr<RankWatch> watch,
      ForAll(*group, RankWatch::Start(std::move(watch_links), spec.sends_to, silence_limit)));
  group->WatchBy(std::move(watch));
  return group;
}

}  // namespace

Result<std::unique_ptr<LinkedGroup>> ConnectedGroup(MeetingPlace& place, const MeetingSeat& seat) {
  Result<std::unique_ptr<LinkedGroup>> group = Connect(place, seat);
  if (group) {
    place.Finish();
  } else {
    place.GiveUp(group.error());
  }
  return group;
}

}  // namespace lmdbio::ranks
