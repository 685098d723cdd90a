// An attempt goes through these phases:
//
//   kPaused --> kConnecting --> kAwaitingWelcome --> kDone
//      ^             |                 |
//      +-------------+-----------------+   failure or timeout: the next address
//
// Serve tries the next step of each attempt with a call that does not block. So it needs no
// assignment of poll results to attempts.
#include "lmdbio/ranks/net/peer_connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

// For one address: to connect, and then to be answered.
constexpr auto kConnectLimit = std::chrono::seconds(3);
constexpr auto kWelcomeLimit = std::chrono::seconds(10);
// Between the last address and the first.
constexpr auto kPauseBetweenRounds = std::chrono::milliseconds(100);

std::string FailureText(const std::vector<PeerAddress>& addresses, std::chrono::milliseconds limit,
                        const std::string& trouble) {
  std::vector<std::string> tried;
  tried.reserve(addresses.size());
  for (const PeerAddress& address : addresses) {
    tried.push_back(fmt::format("{} port {}", Text(address), address.port));
  }
  return fmt::format("within {} s ({}), tried {}", std::chrono::duration<double>(limit).count(),
                     trouble,
                     tried.empty() ? "no address" : fmt::format("{}", fmt::join(tried, ", ")));
}

}  // namespace

void PeerConnector::Add(int rank, std::vector<PeerAddress> addresses, Clock::time_point now) {
  Attempt& attempt = attempts_.emplace_back();
  attempt.rank = rank;
  attempt.addresses = std::move(addresses);
  attempt.begin = now;
  // Without an address nothing can be tried. The attempt then only waits for its limit.
  attempt.until = attempt.addresses.empty() ? now + limits_.total : now;
}

void PeerConnector::Begin(Attempt& attempt, Clock::time_point now) {
  Result<UniqueFd> socket = BeginConnect(attempt.addresses[attempt.next_address]);
  if (!socket) {
    CountRefusal(attempt, socket.error().error_number(), now);
    return TryNextAddress(attempt, socket.error().message(), now);
  }
  attempt.socket = std::move(*socket);
  attempt.phase = ConnectPhase::kConnecting;
  attempt.until = now + kConnectLimit;
}

void PeerConnector::TryNextAddress(Attempt& attempt, std::string trouble, Clock::time_point now) {
  attempt.socket = UniqueFd();
  attempt.phase = ConnectPhase::kPaused;
  attempt.trouble = std::move(trouble);
  // The pause comes after the last address only, so a wrong first address costs little.
  attempt.next_address = (attempt.next_address + 1) % attempt.addresses.size();
  attempt.until = now + (attempt.next_address == 0 ? kPauseBetweenRounds : Clock::duration(0));
}

// Sends the introduction if the TCP connection stands. The send of a socket that still connects
// fails with EAGAIN, and the send of one that could not connect fails with the reason.
void PeerConnector::Introduce(Attempt& attempt, Clock::time_point now) {
  const Introduction introduction{key_, rank_, attempt.rank};
  const ssize_t sent =
      ::send(attempt.socket.get(), &introduction, sizeof introduction, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (sent == sizeof introduction) {  // the empty buffer of a new connection has room for it
    attempt.refused_count = 0;
    attempt.phase = ConnectPhase::kAwaitingWelcome;
    attempt.until = now + kWelcomeLimit;
    return;
  }
  const int error_number = errno;
  CountRefusal(attempt, error_number, now);
  TryNextAddress(attempt, WordsOfFailure("connect", error_number), now);
}

// Any other failure than a refusal ends the row: the rank may still listen there.
void PeerConnector::CountRefusal(Attempt& attempt, int error_number, Clock::time_point now) {
  if (error_number != ECONNREFUSED) {
    attempt.refused_count = 0;
    return;
  }
  if (attempt.refused_count++ == 0) attempt.refused_since = now;
}

// Handles the phases in their order, so an attempt may pass several of them in one call.
void PeerConnector::Continue(Attempt& attempt, Clock::time_point now) {
  if (attempt.phase == ConnectPhase::kConnecting) Introduce(attempt, now);
  if (attempt.phase == ConnectPhase::kAwaitingWelcome) {
    std::byte answer{};
    const ssize_t got = ::recv(attempt.socket.get(), &answer, 1, MSG_DONTWAIT);
    if (got == 1 && answer == kWelcome) {
      attempt.phase = ConnectPhase::kDone;
      return;
    }
    const bool is_pending = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (!is_pending) TryNextAddress(attempt, "the connection was closed", now);
  }
  if (attempt.phase != ConnectPhase::kPaused && now >= attempt.until) {
    attempt.refused_count = 0;
    TryNextAddress(attempt, "no answer", now);
  }
  if (attempt.phase == ConnectPhase::kPaused && now >= attempt.until &&
      !attempt.addresses.empty()) {
    Begin(attempt, now);
  }
}

// Returns the limit that an attempt has exceeded, if it has.
std::optional<std::chrono::milliseconds> PeerConnector::ExceededLimit(const Attempt& attempt,
                                                                      Clock::time_point now) const {
  if (now - attempt.begin >= limits_.total) return limits_.total;
  if (AllRefuse(attempt) && now - attempt.refused_since >= limits_.refused) return limits_.refused;
  return std::nullopt;
}

std::vector<PeerConnector::ConnectResult> PeerConnector::Serve(Clock::time_point now) {
  std::vector<ConnectResult> outcomes;
  for (Attempt& attempt : attempts_) {
    // The step comes before the limit: a rank that has just answered counts as reached.
    Continue(attempt, now);
    if (attempt.phase == ConnectPhase::kDone) {
      outcomes.push_back({attempt.rank, std::move(attempt.socket), ""});
    } else if (const auto limit = ExceededLimit(attempt, now)) {
      attempt.phase = ConnectPhase::kDone;
      outcomes.push_back(
          {attempt.rank, UniqueFd(), FailureText(attempt.addresses, *limit, attempt.trouble)});
    }
  }
  std::erase_if(attempts_,
                [](const Attempt& attempt) { return attempt.phase == ConnectPhase::kDone; });
  return outcomes;
}

void PeerConnector::AddTo(std::vector<pollfd>& polled) const {
  for (const Attempt& attempt : attempts_) {
    // A paused attempt has no socket; Deadline ends its pause.
    if (attempt.phase == ConnectPhase::kPaused) continue;
    const bool connects = attempt.phase == ConnectPhase::kConnecting;
    polled.push_back({attempt.socket.get(), static_cast<short>(connects ? POLLOUT : POLLIN), 0});
  }
}

PeerConnector::Clock::time_point PeerConnector::Deadline() const {
  auto deadline = Clock::time_point::max();
  for (const Attempt& attempt : attempts_) {
    deadline = std::min({deadline, attempt.until, attempt.begin + limits_.total});
    if (AllRefuse(attempt)) deadline = std::min(deadline, attempt.refused_since + limits_.refused);
  }
  return deadline;
}

}  // namespace lmdbio::ranks
