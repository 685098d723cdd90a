// lmdbio/ranks/net/peer_door.h - accepts connections of the other ranks of a job.
//
// The door listens at the addresses that the peers know, and at no others. A connection is a
// stranger until it has shown the key of the job. Strangers cannot keep the peers out: their number
// is limited, the oldest is closed for the next one, and each has a limited time.
#ifndef LMDBIO_RANKS_NET_PEER_DOOR_H_
#define LMDBIO_RANKS_NET_PEER_DOOR_H_

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/net/peer_address.h"

namespace lmdbio::ranks {

using JobKey = std::array<std::byte, 16>;

// The first bytes of a connection.
struct Introduction {
  JobKey key{};
  int32_t from = -1;
  int32_t to = -1;
};
static_assert(std::is_trivially_copyable_v<Introduction>);

// The answer of the wanted rank.
constexpr std::byte kWelcome{0x06};

// Threads: one. The caller passes the time.
class PeerDoor {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kStrangersMax = 128;
  static constexpr auto kIntroductionLimit = std::chrono::seconds(5);
  // The pause after a connection that could not be accepted because no descriptor is left.
  static constexpr auto kRest = std::chrono::milliseconds(100);

  // A connection that has shown the key.
  struct Visitor {
    int from = -1;
    int to = -1;
    UniqueFd socket;  // does not block
  };

  // A closed door: it does not listen.
  PeerDoor() = default;

  // Listens at each of `addresses`, at a free port. Leaves out addresses at which it cannot listen.
  // addresses  of interfaces of this host
  // Errors: kIo                 it can listen nowhere; names the last address and the reason
  //         kResourceExhausted  no descriptor is left; names the limit
  static Result<PeerDoor> Open(std::span<const PeerAddress> addresses);

  // The addresses at which the door listens, with their ports.
  const Reachability& reachability() const { return reachability_; }

  // Appends the sockets whose events require a call of Serve.
  void AddTo(std::vector<pollfd>& polled, Clock::time_point now) const;
  // The latest time for the next call of Serve.
  Clock::time_point Deadline() const;

  // Accepts connections and reads their introductions. Closes strangers that send other bytes than
  // the key, or are too slow. Never waits, and ends however many strangers connect.
  // key  of the job
  std::vector<Visitor> Serve(const JobKey& key, Clock::time_point now);

  // Sends the welcome to a visitor. False if the visitor has closed its connection meanwhile.
  static bool Answer(const Visitor& visitor);

  size_t stranger_count() const { return strangers_.size(); }
  // Why the last connection could not be accepted: "accept: Too many open files (...)"; "" if it
  // could.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Stranger {
    UniqueFd socket;
    Clock::time_point until{};
    std::array<std::byte, sizeof(Introduction)> bytes{};
    size_t got = 0;
  };
  enum class Heard { kNothingYet, kEnough, kWrong };

  static Heard Listen(Stranger& stranger, const JobKey& key);
  static Visitor AsVisitor(Stranger& stranger);
  UniqueFd Accept(const UniqueFd& listener, Clock::time_point now);
  void AcceptFrom(const UniqueFd& listener, const JobKey& key, Clock::time_point now,
                  std::vector<Visitor>& visitors);

  std::vector<UniqueFd> listeners_;
  Reachability reachability_;
  std::deque<Stranger> strangers_;  // the oldest first
  Clock::time_point rests_until_{};
  std::string trouble_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_DOOR_H_
