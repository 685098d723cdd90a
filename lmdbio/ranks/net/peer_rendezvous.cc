#include "lmdbio/ranks/net/peer_rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/ranks/net/peer_address.h"
#include "lmdbio/ranks/net/peer_door.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMeetingLimit = std::chrono::seconds(30);
// For one address of one rank, to connect, and then to be answered.
constexpr auto kConnectLimit = std::chrono::seconds(3);
constexpr auto kWelcomeLimit = std::chrono::seconds(10);
constexpr auto kPauseBetweenRounds = std::chrono::milliseconds(100);
constexpr std::byte kWelcome{0x06};

// A rank that this one will send to.
struct OutgoingLink {
  enum class RendezvousPhase {
    kPaused,
    kConnecting,
    kAwaitingWelcome,
    kStands
  } phase = RendezvousPhase::kPaused;
  int rank = -1;
  std::vector<PeerAddress> addresses;
  size_t next_address = 0;
  Clock::time_point until{};          // of a pause or an attempt
  std::string trouble = "no answer";  // of the last attempt that failed
  UniqueFd socket;
};

class Rendezvous {
 public:
  Rendezvous(int rank, const JobKey& key, PeerDoor door, const LinkSpec& plan)
      : rank_(rank), key_(key), door_(std::move(door)), expected_(plan.receives_from) {}

  void Expect(int rank, const Reachability& there, std::span<const PeerAddress> mine) {
    OutgoingLink& peer = outgoing_.emplace_back();
    peer.rank = rank;
    peer.addresses = InOrderOfTry(mine, std::span(there.addresses).first(there.address_count));
  }

  // Until all links stand.
  Status Run();
  RendezvousResult TakeResult();

 private:
  bool IsOver() const {
    return result_.incoming.size() == expected_.size() &&
           std::all_of(outgoing_.begin(), outgoing_.end(), [](const OutgoingLink& peer) {
             return peer.phase == OutgoingLink::RendezvousPhase::kStands;
           });
  }
  Clock::time_point NextDeadline(Clock::time_point limit) const;
  void Begin(OutgoingLink& peer);
  void GiveUp(OutgoingLink& peer, std::string trouble);
  void GoOn(OutgoingLink& peer);
  void Welcome(PeerDoor::Visitor visitor);
  void BeginDue(Clock::time_point now);
  Status TooLate() const;

  int rank_;
  JobKey key_;
  PeerDoor door_;
  std::vector<int> expected_;
  std::vector<OutgoingLink> outgoing_;
  RendezvousResult result_;
};

void Rendezvous::Begin(OutgoingLink& peer) {
  if (peer.addresses.empty()) {
    peer.until = Clock::now() + kMeetingLimit;
    return;
  }
  Result<UniqueFd> socket = BeginConnect(peer.addresses[peer.next_address]);
  if (!socket) return GiveUp(peer, socket.error().message());
  peer.socket = std::move(*socket);
  peer.phase = OutgoingLink::RendezvousPhase::kConnecting;
  peer.until = Clock::now() + kConnectLimit;
}

// Of this address, for now.
void Rendezvous::GiveUp(OutgoingLink& peer, std::string trouble) {
  peer.socket = UniqueFd();
  peer.phase = OutgoingLink::RendezvousPhase::kPaused;
  peer.trouble = std::move(trouble);
  peer.next_address = (peer.next_address + 1) % peer.addresses.size();
  peer.until = Clock::now() + (peer.next_address == 0 ? kPauseBetweenRounds : Clock::duration(0));
}

void Rendezvous::GoOn(OutgoingLink& peer) {
  if (peer.phase == OutgoingLink::RendezvousPhase::kConnecting) {
    const Introduction mine{key_, rank_, peer.rank};
    // Fits into the empty buffer of a connection that stands.
    const ssize_t sent = ::send(peer.socket.get(), &mine, sizeof mine, MSG_NOSIGNAL);
    if (sent != sizeof mine) return GiveUp(peer, WordsOfFailure("connect", errno));
    peer.phase = OutgoingLink::RendezvousPhase::kAwaitingWelcome;
    peer.until = Clock::now() + kWelcomeLimit;
    return;
  }
  std::byte answer{};
  const ssize_t got = ::recv(peer.socket.get(), &answer, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1 || answer != kWelcome) return GiveUp(peer, "the connection was closed");
  peer.phase = OutgoingLink::RendezvousPhase::kStands;
}

// A visitor that comes again has given up its first connection.
void Rendezvous::Welcome(PeerDoor::Visitor visitor) {
  const bool is_expected = visitor.to == rank_ && std::find(expected_.begin(), expected_.end(),
                                                            visitor.from) != expected_.end();
  if (!is_expected || ::send(visitor.socket.get(), &kWelcome, 1, MSG_NOSIGNAL) != 1) return;
  result_.incoming[visitor.from] = std::move(visitor.socket);
}

Clock::time_point Rendezvous::NextDeadline(Clock::time_point limit) const {
  limit = std::min(limit, door_.Deadline());
  for (const OutgoingLink& peer : outgoing_) {
    if (peer.phase != OutgoingLink::RendezvousPhase::kStands) limit = std::min(limit, peer.until);
  }
  return limit;
}

Status Rendezvous::TooLate() const {
  for (const OutgoingLink& peer : outgoing_) {
    if (peer.phase == OutgoingLink::RendezvousPhase::kStands) continue;
    std::vector<std::string> tried;
    for (const PeerAddress& address : peer.addresses) {
      tried.push_back(fmt::format("{} port {}", Text(address), address.port));
    }
    return Fail(
        ErrorCode::kIo,
        fmt::format("no connection to rank {} within {} s ({}), tried {}", peer.rank,
                    kMeetingLimit.count(), peer.trouble,
                    tried.empty() ? "no address" : fmt::format("{}", fmt::join(tried, ", "))));
  }
  for (const int rank : expected_) {
    if (result_.incoming.count(rank) != 0) continue;
    const std::string why = door_.trouble().empty() ? "" : fmt::format(" ({})", door_.trouble());
    return Fail(ErrorCode::kIo, fmt::format("rank {} has not connected within {} s{}", rank,
                                            kMeetingLimit.count(), why));
  }
  return {};
}

// Begins what has paused for long enough, and gives up what takes too long.
void Rendezvous::BeginDue(Clock::time_point now) {
  for (OutgoingLink& peer : outgoing_) {
    if (peer.phase == OutgoingLink::RendezvousPhase::kStands || now < peer.until) continue;
    if (peer.phase != OutgoingLink::RendezvousPhase::kPaused) GiveUp(peer, "no answer");
    if (peer.until <= Clock::now()) Begin(peer);
  }
}

Status Rendezvous::Run() {
  const auto limit = Clock::now() + kMeetingLimit;
  std::vector<pollfd> polled;
  while (!IsOver()) {
    const auto now = Clock::now();
    if (now >= limit) return TooLate();
    BeginDue(now);
    polled.clear();
    for (const OutgoingLink& peer : outgoing_) {
      const bool connects = peer.phase == OutgoingLink::RendezvousPhase::kConnecting;
      const bool waits = connects || peer.phase == OutgoingLink::RendezvousPhase::kAwaitingWelcome;
      polled.push_back(
          {waits ? peer.socket.get() : -1, static_cast<short>(connects ? POLLOUT : POLLIN), 0});
    }
    door_.AddTo(polled, now);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(NextDeadline(limit) - now);
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    for (size_t i = 0; i < outgoing_.size(); ++i) {
      if (polled[i].revents != 0) GoOn(outgoing_[i]);
    }
    for (PeerDoor::Visitor& visitor : door_.Serve(key_, Clock::now())) Welcome(std::move(visitor));
  }
  return {};
}

RendezvousResult Rendezvous::TakeResult() {
  for (OutgoingLink& peer : outgoing_) result_.outgoing[peer.rank] = std::move(peer.socket);
  return std::move(result_);
}

Result<JobKey> ShareKey(Group& group) {
  JobKey key{};
  Status made;
  if (group.rank() == 0 && ::getrandom(key.data(), key.size(), 0) != sizeof key) {
    made = Fail(ErrorCode::kInternal, fmt::format("getrandom: {}", std::strerror(errno)), errno);
  }
  LMDBIO_TRY_VOID(Agree(group, std::move(made)));
  LMDBIO_TRY_VOID(group.Broadcast(0, key));
  return key;
}

// Collective. Where the other ranks may connect to this one: at the loopback alone, if all of them
// are in its network namespace.
Result<std::vector<PeerAddress>> UsefulAddresses(Group& group) {
  const uint64_t mine = NetworkNamespace();
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  bool is_one_network = mine != 0 && group.host_name().empty();
  for (size_t at = 0; at < all.size(); at += sizeof mine) {
    is_one_network = is_one_network && std::memcmp(&all[at], &mine, sizeof mine) == 0;
  }
  std::vector<PeerAddress> addresses = OwnAddresses();
  if (is_one_network && std::any_of(addresses.begin(), addresses.end(), IsLoopback)) {
    std::erase_if(addresses, [](const PeerAddress& one) { return !IsLoopback(one); });
  }
  return addresses;
}

// Whether the descriptors for all links are there. A rank that finds out in the middle of the
// meeting would let the others wait for it until the end.
Status CheckDescriptors(size_t count) {
  std::vector<UniqueFd> taken;
  while (taken.size() < count) {
    UniqueFd one(::eventfd(0, EFD_CLOEXEC));
    if (one) {
      taken.push_back(std::move(one));
      continue;
    }
    const int error_number = errno;
    const size_t room = taken.size();
    taken.clear();  // the rest of the process needs some again
    return CallFailed(ErrorCode::kResourceExhausted,
                      fmt::format("{} connections to other ranks, with room for {}", count, room),
                      error_number);
  }
  return {};
}

Result<PeerDoor> OpenDoor(std::span<const PeerAddress> addresses, const LinkSpec& plan) {
  PeerDoor door;
  if (!plan.receives_from.empty()) {
    LMDBIO_TRY(door, PeerDoor::Open(addresses));
  }
  LMDBIO_TRY_VOID(CheckDescriptors(plan.sends_to.size() + plan.receives_from.size()));
  return door;
}

}  // namespace

Result<RendezvousResult> MeetPeers(Group& group, const LinkSpec& plan) {
  LMDBIO_TRY(const std::vector<PeerAddress> addresses, UsefulAddresses(group));
  LMDBIO_TRY(PeerDoor door, ForAll(group, OpenDoor(addresses, plan)));
  const Reachability mine = door.reachability();
  LMDBIO_TRY(const JobKey key, ShareKey(group));
  LMDBIO_TRY(const auto gathered, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  Rendezvous meeting(group.rank(), key, std::move(door), plan);
  for (const int rank : plan.sends_to) {
    Reachability there;
    std::memcpy(&there, &gathered[static_cast<size_t>(rank) * sizeof there], sizeof there);
    meeting.Expect(rank, there, addresses);
  }
  LMDBIO_TRY_VOID(Agree(group, meeting.Run()));
  return meeting.TakeResult();
}

}  // namespace lmdbio::ranks
