#include "lmdbio/ranks/net/peer_rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_connector.h"
#include "lmdbio/ranks/net/peer_door.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRendezvousLimit = std::chrono::seconds(30);
constexpr auto kCheckPeriod = std::chrono::milliseconds(200);
// The doors of ranks that have met are open, so one that refuses is gone.
constexpr auto kGoneLimit = std::chrono::seconds(2);
// Another rank may reach its own limit a moment later and must still find the door open.
constexpr ConnectLimits kRendezvousConnectLimits{.total = kRendezvousLimit,
                                                 .refused = kRendezvousLimit};

class Rendezvous {
 public:
  Rendezvous(int rank, JobAddresses job, const LinkSpec& plan, const ConnectLimits& limits)
      : rank_(rank),
        job_(std::move(job)),
        expected_(plan.receives_from),
        limit_(limits.total),
        connector_(rank, job_.key, limits) {
    for (const int to : plan.sends_to) connector_.Add(to, job_.InOrderFor(to), Clock::now());
  }

  // Returns when all links stand, or one of them cannot be made.
  // check  see ConnectPeers; may be empty
  Status Run(const std::function<Status()>& check);
  RendezvousResult TakeResult() { return std::move(result_); }

 private:
  // The connector is idle when it has reported each attempt; a failed one has ended Run before.
  bool is_complete() const {
    return connector_.is_idle() && result_.incoming.size() == expected_.size();
  }
  void Wait(Clock::time_point limit);
  Status TakeOutcomes();
  void Welcome(PeerDoor::Visitor visitor);
  Status MissingVisitor() const;

  int rank_;
  JobAddresses job_;
  std::vector<int> expected_;
  std::chrono::milliseconds limit_;
  PeerConnector connector_;
  RendezvousResult result_;
};

// A visitor that comes again has given up its first connection, so the later one replaces it.
void Rendezvous::Welcome(PeerDoor::Visitor visitor) {
  const bool is_expected = visitor.to == rank_ && std::find(expected_.begin(), expected_.end(),
                                                            visitor.from) != expected_.end();
  if (!is_expected || !PeerDoor::Answer(visitor)) return;
  result_.incoming[visitor.from] = std::move(visitor.socket);
}

Status Rendezvous::TakeOutcomes() {
  for (PeerConnector::ConnectResult& outcome : connector_.Serve(Clock::now())) {
    if (!outcome.socket) {
      return Fail(ErrorCode::kIo,
                  fmt::format("no connection to rank {} {}", outcome.rank, outcome.failure));
    }
    result_.outgoing[outcome.rank] = std::move(outcome.socket);
  }
  return {};
}

Status Rendezvous::MissingVisitor() const {
  for (const int rank : expected_) {
    if (result_.incoming.count(rank) != 0) continue;
    const std::string why =
        job_.door.trouble().empty() ? "" : fmt::format(" ({})", job_.door.trouble());
    return Fail(ErrorCode::kIo, fmt::format("rank {} has not connected within {} s{}", rank,
                                            std::chrono::duration<double>(limit_).count(), why));
  }
  return {};
}

void Rendezvous::Wait(Clock::time_point limit) {
  const auto now = Clock::now();
  const auto deadline = std::min({limit, job_.door.Deadline(), connector_.Deadline()});
  std::vector<pollfd> polled;
  connector_.AddTo(polled);
  job_.door.AddTo(polled, now);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
}

Status Rendezvous::Run(const std::function<Status()>& check) {
  // Visitors and own attempts go on together, because other ranks connect while this one does.
  const auto limit = Clock::now() + limit_;
  while (true) {
    LMDBIO_TRY_VOID(TakeOutcomes());
    for (PeerDoor::Visitor& visitor : job_.door.Serve(job_.key, Clock::now())) {
      Welcome(std::move(visitor));
    }
    if (is_complete()) return {};
    if (Clock::now() >= limit) {
      LMDBIO_TRY_VOID(TakeOutcomes());  // every attempt has ended by now
      return MissingVisitor();
    }
    if (check) LMDBIO_TRY_VOID(check());
    Wait(check ? std::min(limit, Clock::now() + kCheckPeriod) : limit);
  }
}

}  // namespace

Result<RendezvousResult> MeetPeers(Group& group, const LinkSpec& plan) {
  const AddressPlan needs{.listens = plan.receives_from.empty() ? AddressPlan::Listens::kNo
                                                                : AddressPlan::Listens::kYes,
                          .connection_count = plan.sends_to.size() + plan.receives_from.size()};
  LMDBIO_TRY(JobAddresses job, ExchangeAddresses(group, needs));
  // If one rank fails, all ranks drop their links. The door closes with the rendezvous.
  Rendezvous rendezvous(group.rank(), std::move(job), plan, kRendezvousConnectLimits);
  const auto check = [&group] { return group.CheckRanks(); };
  LMDBIO_TRY_VOID(Agree(group, rendezvous.Run(check)));
  return rendezvous.TakeResult();
}

Result<RendezvousResult> ConnectPeers(int rank, JobAddresses job, const LinkSpec& plan,
                                      std::chrono::milliseconds limit,
                                      const std::function<Status()>& check) {
  Rendezvous rendezvous(rank, std::move(job), plan, {.total = limit, .refused = kGoneLimit});
  LMDBIO_TRY_VOID(rendezvous.Run(check));
  return rendezvous.TakeResult();
}

}  // namespace lmdbio::ranks
