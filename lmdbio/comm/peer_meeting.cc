#include "lmdbio/comm/peer_meeting.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/comm/peer_address.h"

namespace lmdbio::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMeetingLimit = std::chrono::seconds(30);
// For one address of one rank, to connect, and then to be answered.
constexpr auto kConnectLimit = std::chrono::seconds(3);
constexpr auto kWelcomeLimit = std::chrono::seconds(10);
constexpr auto kPauseBetweenRounds = std::chrono::milliseconds(100);
constexpr std::byte kWelcome{0x06};

using Key = std::array<std::byte, 16>;

struct Hello {
  Key key;
  int32_t from;
  int32_t to;
};
static_assert(std::is_trivially_copyable_v<Hello>);

// A rank that this one will send to.
struct Outgoing {
  enum class Phase { kPaused, kConnecting, kAwaitingWelcome, kStands } phase = Phase::kPaused;
  int rank = -1;
  uint16_t port = 0;
  std::vector<PeerAddress> addresses;
  size_t next_address = 0;
  Clock::time_point until{};  // of a pause or an attempt
  UniqueFd socket;
};

// Somebody who has connected and not said yet who it is.
struct Stranger {
  UniqueFd socket;
  std::array<std::byte, sizeof(Hello)> bytes{};
  size_t got = 0;
};

class Meeting {
 public:
  Meeting(int rank, const Key& key, const UniqueFd& listener, const LinkPlan& plan)
      : rank_(rank), key_(key), listener_(listener), expected_(plan.receives_from) {}

  void Expect(int rank, const Reachability& there, std::span<const PeerAddress> mine) {
    Outgoing& peer = outgoing_.emplace_back();
    peer.rank = rank;
    peer.port = there.port;
    peer.addresses = InOrderOfTry(mine, std::span(there.addresses).first(there.address_count));
  }

  // Until all links stand.
  Status Run();
  MeetingResult TakeResult();

 private:
  bool IsOver() const {
    return result_.incoming.size() == expected_.size() &&
           std::all_of(outgoing_.begin(), outgoing_.end(),
                       [](const Outgoing& peer) { return peer.phase == Outgoing::Phase::kStands; });
  }
  Clock::time_point NextDeadline(Clock::time_point limit) const;
  void Begin(Outgoing& peer);
  void GiveUp(Outgoing& peer);
  void GoOn(Outgoing& peer);
  void AcceptAll();
  bool Listen(Stranger& stranger);
  bool Welcome(Stranger& stranger);
  Status TooLate() const;

  int rank_;
  Key key_;
  const UniqueFd& listener_;
  std::vector<int> expected_;
  std::vector<Outgoing> outgoing_;
  std::vector<Stranger> strangers_;
  MeetingResult result_;
};

void Meeting::Begin(Outgoing& peer) {
  if (peer.addresses.empty()) {
    peer.until = Clock::now() + kMeetingLimit;
    return;
  }
  const PeerAddress& address = peer.addresses[peer.next_address];
  Result<UniqueFd> socket = BeginConnect(address, peer.port);
  if (!socket) return GiveUp(peer);
  peer.socket = std::move(*socket);
  peer.phase = Outgoing::Phase::kConnecting;
  peer.until = Clock::now() + kConnectLimit;
}

// Of this address, for now.
void Meeting::GiveUp(Outgoing& peer) {
  peer.socket = UniqueFd();
  peer.phase = Outgoing::Phase::kPaused;
  peer.next_address = (peer.next_address + 1) % peer.addresses.size();
  peer.until = Clock::now() + (peer.next_address == 0 ? kPauseBetweenRounds : Clock::duration(0));
}

void Meeting::GoOn(Outgoing& peer) {
  if (peer.phase == Outgoing::Phase::kConnecting) {
    const Hello hello{key_, rank_, peer.rank};
    // Fits into the empty buffer of a connection that stands.
    const ssize_t sent = ::send(peer.socket.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    if (sent != sizeof hello) return GiveUp(peer);
    peer.phase = Outgoing::Phase::kAwaitingWelcome;
    peer.until = Clock::now() + kWelcomeLimit;
    return;
  }
  std::byte answer{};
  const ssize_t got = ::recv(peer.socket.get(), &answer, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1 || answer != kWelcome) return GiveUp(peer);
  peer.phase = Outgoing::Phase::kStands;
}

void Meeting::AcceptAll() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    strangers_.emplace_back().socket = std::move(socket);
  }
}

bool Meeting::Welcome(Stranger& stranger) {
  Hello hello{};
  std::memcpy(&hello, stranger.bytes.data(), sizeof hello);
  const bool is_expected =
      hello.key == key_ && hello.to == rank_ &&
      std::find(expected_.begin(), expected_.end(), hello.from) != expected_.end();
  if (!is_expected || ::send(stranger.socket.get(), &kWelcome, 1, MSG_NOSIGNAL) != 1) return false;
  // Who comes again has given up the first time.
  result_.incoming[hello.from] = std::move(stranger.socket);
  return true;
}

// False when there is nothing more to hear from this one.
bool Meeting::Listen(Stranger& stranger) {
  const ssize_t got = ::recv(stranger.socket.get(), &stranger.bytes[stranger.got],
                             stranger.bytes.size() - stranger.got, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  stranger.got += static_cast<size_t>(got);
  if (stranger.got < stranger.bytes.size()) return true;
  Welcome(stranger);
  return false;
}

Clock::time_point Meeting::NextDeadline(Clock::time_point limit) const {
  for (const Outgoing& peer : outgoing_) {
    if (peer.phase != Outgoing::Phase::kStands) limit = std::min(limit, peer.until);
  }
  return limit;
}

Status Meeting::TooLate() const {
  for (const Outgoing& peer : outgoing_) {
    if (peer.phase == Outgoing::Phase::kStands) continue;
    std::string tried;
    for (const PeerAddress& address : peer.addresses) {
      tried += (tried.empty() ? "" : ", ") + Text(address);
    }
    return Fail(ErrorCode::kIo, fmt::format("no connection to rank {} at port {} of {}", peer.rank,
                                            peer.port, tried.empty() ? "no address" : tried));
  }
  for (const int rank : expected_) {
    if (result_.incoming.count(rank) == 0) {
      return Fail(ErrorCode::kIo, fmt::format("rank {} has not connected", rank));
    }
  }
  return {};
}

Status Meeting::Run() {
  const auto limit = Clock::now() + kMeetingLimit;
  std::vector<pollfd> polled;
  while (!IsOver()) {
    const auto now = Clock::now();
    if (now >= limit) return TooLate();
    for (Outgoing& peer : outgoing_) {
      if (peer.phase == Outgoing::Phase::kStands || now < peer.until) continue;
      if (peer.phase != Outgoing::Phase::kPaused) GiveUp(peer);
      if (peer.until <= Clock::now()) Begin(peer);
    }
    polled.assign(1, {listener_.get(), POLLIN, 0});
    for (const Outgoing& peer : outgoing_) {
      const bool connects = peer.phase == Outgoing::Phase::kConnecting;
      const bool waits = connects || peer.phase == Outgoing::Phase::kAwaitingWelcome;
      polled.push_back(
          {waits ? peer.socket.get() : -1, static_cast<short>(connects ? POLLOUT : POLLIN), 0});
    }
    for (const Stranger& one : strangers_) polled.push_back({one.socket.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(NextDeadline(limit) - now);
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    for (size_t i = 0; i < outgoing_.size(); ++i) {
      if (polled[1 + i].revents != 0) GoOn(outgoing_[i]);
    }
    size_t at = 1 + outgoing_.size();
    std::erase_if(strangers_, [&](Stranger& stranger) {
      return polled[at++].revents != 0 && !Listen(stranger);
    });
    AcceptAll();
  }
  return {};
}

MeetingResult Meeting::TakeResult() {
  for (Outgoing& peer : outgoing_) result_.outgoing[peer.rank] = std::move(peer.socket);
  return std::move(result_);
}

Result<Key> ShareKey(Group& group) {
  Key key{};
  Status made;
  if (group.rank() == 0 && ::getrandom(key.data(), key.size(), 0) != sizeof key) {
    made = Fail(ErrorCode::kInternal, fmt::format("getrandom: {}", std::strerror(errno)), errno);
  }
  LMDBIO_TRY_VOID(Agree(group, std::move(made)));
  LMDBIO_TRY_VOID(group.Broadcast(0, key));
  return key;
}

}  // namespace

Result<MeetingResult> MeetPeers(Group& group, const LinkPlan& plan) {
  Reachability mine;
  LMDBIO_TRY(const UniqueFd listener, ForAll(group, Listen(mine.port)));
  const std::vector<PeerAddress> addresses = OwnAddresses();
  mine.address_count = static_cast<uint16_t>(addresses.size());
  std::copy(addresses.begin(), addresses.end(), mine.addresses.begin());
  LMDBIO_TRY(const Key key, ShareKey(group));
  LMDBIO_TRY(const auto gathered, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  Meeting meeting(group.rank(), key, listener, plan);
  for (const int rank : plan.sends_to) {
    Reachability there;
    std::memcpy(&there, &gathered[static_cast<size_t>(rank) * sizeof there], sizeof there);
    meeting.Expect(rank, there, addresses);
  }
  LMDBIO_TRY_VOID(Agree(group, meeting.Run()));
  return meeting.TakeResult();
}

}  // namespace lmdbio::comm
