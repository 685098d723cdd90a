// lmdbio/ranks/net/peer_connector.h - connects to the doors of other ranks.
//
// The counterpart of ranks/net/peer_door.h. For each wanted rank the connector tries the rank's
// addresses in turn, one at a time. After a TCP connection stands, it sends an Introduction and
// waits for the answer of the wanted rank, because the address may belong to another machine. It
// begins again after the last address, until the rank answers or the time is over.
//
// Source: docs/many_hosts.md "Messages".
#ifndef LMDBIO_RANKS_NET_PEER_CONNECTOR_H_
#define LMDBIO_RANKS_NET_PEER_CONNECTOR_H_

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "lmdbio/ranks/net/peer_door.h"

namespace lmdbio::ranks {

// How long the connector tries to reach a rank.
struct ConnectLimits {
  // From Add until the connector reports a failure.
  std::chrono::milliseconds total{30'000};
  // The same, if all addresses refuse the connection: then no process listens there any more.
  std::chrono::milliseconds refused{30'000};
};

// Threads: one. The caller passes the time.
class PeerConnector {
 public:
  using Clock = std::chrono::steady_clock;

  // The end of all attempts to reach a rank.
  struct ConnectResult {
    int rank = -1;
    UniqueFd socket;      // does not block; empty after a failure
    std::string failure;  // "within 30 s (no answer), tried 10.1.2.3 port 4711"
  };

  // rank  this rank, for the introduction
  // key   of the job
  PeerConnector(int rank, const JobKey& key, const ConnectLimits& limits)
      : rank_(rank), key_(key), limits_(limits) {}

  // Begins to connect to `rank`.
  // addresses  in the order of attempts; without any, the attempt fails after the total limit
  void Add(int rank, std::vector<PeerAddress> addresses, Clock::time_point now);

  // Appends the sockets whose events require a call of Serve.
  void AddTo(std::vector<pollfd>& polled) const;
  // The latest time for the next call of Serve.
  Clock::time_point Deadline() const;

  // Continues all attempts as far as possible without waiting.
  // Returns: the ranks that were reached, or given up, in this call
  std::vector<ConnectResult> Serve(Clock::time_point now);

  bool is_idle() const { return attempts_.empty(); }

 private:
  enum class ConnectPhase { kPaused, kConnecting, kAwaitingWelcome, kDone };
  struct Attempt {
    int rank = -1;
    std::vector<PeerAddress> addresses;
    size_t next_address = 0;
    ConnectPhase phase = ConnectPhase::kPaused;
    Clock::time_point begin{};
    Clock::time_point until{};          // of the pause or of the present phase
    Clock::time_point refused_since{};  // the first of the refusals in a row
    size_t refused_count = 0;           // in a row
    std::string trouble = "no answer";  // of the last address
    UniqueFd socket;
  };

  void Begin(Attempt& attempt, Clock::time_point now);
  void TryNextAddress(Attempt& attempt, std::string trouble, Clock::time_point now);
  void Continue(Attempt& attempt, Clock::time_point now);
  void Introduce(Attempt& attempt, Clock::time_point now);
  static void CountRefusal(Attempt& attempt, int error_number, Clock::time_point now);
  static bool AllRefuse(const Attempt& attempt) {
    return attempt.refused_count > 0 && attempt.refused_count >= attempt.addresses.size();
  }
  std::optional<std::chrono::milliseconds> ExceededLimit(const Attempt& attempt,
                                                         Clock::time_point now) const;

  int rank_;
  JobKey key_;
  ConnectLimits limits_;
  std::vector<Attempt> attempts_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_CONNECTOR_H_
