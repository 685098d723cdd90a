#include "lmdbio/ranks/net/peer_door.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

// Of one listener in one call of Serve, so that a flood of strangers does not hold the caller.
constexpr int kAcceptsMax = 256;

}  // namespace

Result<PeerDoor> PeerDoor::Open(std::span<const PeerAddress> addresses) {
  PeerDoor door;
  std::optional<Error> failure;
  for (PeerAddress address :
       addresses.first(std::min(addresses.size(), Reachability::kAddressesMax))) {
    Result<UniqueFd> listener = ListenAt(address);
    if (listener) {
      door.listeners_.push_back(std::move(*listener));
      door.reachability_.addresses[door.reachability_.address_count++] = address;
      continue;
    }
    // Every further address would fail in the same way.
    if (listener.error().code() == ErrorCode::kResourceExhausted) {
      return Fail(std::move(listener).error());
    }
    failure = std::move(listener).error().Within(fmt::format("listening at {}", Text(address)));
  }
  if (!door.listeners_.empty()) return door;
  if (failure) return Fail(std::move(*failure));
  return Fail(ErrorCode::kIo, "no network interface of this host is up, not even the loopback");
}

void PeerDoor::AddTo(std::vector<pollfd>& polled, Clock::time_point now) const {
  for (const UniqueFd& listener : listeners_) {
    if (now >= rests_until_) polled.push_back({listener.get(), POLLIN, 0});
  }
  for (const Stranger& one : strangers_) polled.push_back({one.socket.get(), POLLIN, 0});
}

PeerDoor::Clock::time_point PeerDoor::Deadline() const {
  // All strangers have the same limit, so the oldest reaches it first.
  auto deadline = Clock::time_point::max();
  if (rests_until_ != Clock::time_point()) deadline = rests_until_;
  if (!strangers_.empty()) deadline = std::min(deadline, strangers_.front().until);
  return deadline;
}

// Reads as much of the introduction as has come. A stranger that closes its connection, or has sent
// other bytes than the key, is wrong.
PeerDoor::Heard PeerDoor::Listen(Stranger& stranger, const JobKey& key) {
  const ssize_t got = ::recv(stranger.socket.get(), &stranger.bytes[stranger.got],
                             stranger.bytes.size() - stranger.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (got <= 0) return Heard::kWrong;
  stranger.got += static_cast<size_t>(got);
  if (stranger.got < stranger.bytes.size()) return Heard::kNothingYet;
  Introduction said;
  std::memcpy(&said, stranger.bytes.data(), sizeof said);
  return said.key == key ? Heard::kEnough : Heard::kWrong;
}

PeerDoor::Visitor PeerDoor::AsVisitor(Stranger& stranger) {
  Introduction said;
  std::memcpy(&said, stranger.bytes.data(), sizeof said);
  return {said.from, said.to, std::move(stranger.socket)};
}

// Returns an empty socket if no connection waits, or none can be accepted now.
UniqueFd PeerDoor::Accept(const UniqueFd& listener, Clock::time_point now) {
  while (true) {
    UniqueFd socket = AcceptLink(listener);
    if (socket) {
      trouble_.clear();
      return socket;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return socket;
    // The next connection may be a peer. Strangers give up their descriptors for it.
    if ((errno == EMFILE || errno == ENFILE) && !strangers_.empty()) {
      strangers_.pop_front();
      continue;
    }
    // The connection stays in the queue. So poll would return at once, again and again, and the
    // door leaves the listener out of poll for a while.
    trouble_ = WordsOfFailure("accept", errno);
    rests_until_ = now + kRest;
    return socket;
  }
}

void PeerDoor::AcceptFrom(const UniqueFd& listener, const JobKey& key, Clock::time_point now,
                          std::vector<Visitor>& visitors) {
  // Most introductions have come by now, so most connections never become strangers.
  for (int i = 0; i < kAcceptsMax; ++i) {
    Stranger stranger{Accept(listener, now), now + kIntroductionLimit};
    if (!stranger.socket) return;
    const Heard heard = Listen(stranger, key);
    if (heard == Heard::kEnough) visitors.push_back(AsVisitor(stranger));
    if (heard != Heard::kNothingYet) continue;
    if (strangers_.size() == kStrangersMax) strangers_.pop_front();
    strangers_.push_back(std::move(stranger));
  }
}

std::vector<PeerDoor::Visitor> PeerDoor::Serve(const JobKey& key, Clock::time_point now) {
  // Known strangers come first: that frees places and descriptors for new connections.
  std::vector<Visitor> visitors;
  std::erase_if(strangers_, [&](Stranger& stranger) {
    const Heard heard = Listen(stranger, key);
    if (heard == Heard::kEnough) visitors.push_back(AsVisitor(stranger));
    return heard != Heard::kNothingYet || now >= stranger.until;
  });
  if (now < rests_until_) return visitors;
  rests_until_ = {};
  for (const UniqueFd& listener : listeners_) AcceptFrom(listener, key, now, visitors);
  return visitors;
}

// A visitor sends nothing before the welcome, so a readable socket means an end of file.
bool PeerDoor::Answer(const Visitor& visitor) {
  std::byte unexpected{};
  const ssize_t got =
      ::recv(visitor.socket.get(), &unexpected, sizeof unexpected, MSG_PEEK | MSG_DONTWAIT);
  if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return false;
  return ::send(visitor.socket.get(), &kWelcome, 1, MSG_NOSIGNAL) == 1;
}

}  // namespace lmdbio::ranks
