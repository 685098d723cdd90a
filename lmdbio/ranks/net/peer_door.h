// lmdbio/ranks/net/peer_door.h - where the other ranks of a job connect to this one.
//
// The door listens at the addresses that the peers are told, and nowhere else. A connection is a
// stranger until it has shown the job's key. Strangers cannot keep the peers out: there are few of
// them at a time, the oldest makes room for the next, and none has long to introduce itself.
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

// Threads: one. Time is what the caller says it is.
class PeerDoor {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kStrangersMax = 128;
  static constexpr auto kIntroductionLimit = std::chrono::seconds(5);
  // Where nothing can be accepted (no descriptor is left), the next attempt is made after this.
  static constexpr auto kRest = std::chrono::milliseconds(100);

  // A connection that has shown the key.
  struct Visitor {
    int from = -1;
    int to = -1;
    UniqueFd socket;  // does not block
  };

  // A door that is shut: nobody listens.
  PeerDoor() = default;

  // Listens at each of `addresses`, at a port of its own; leaves out those where it cannot.
  // addresses  of interfaces of this host
  // Errors: kIo                 it can listen nowhere; names the last address and the reason
  //         kResourceExhausted  no descriptor is left
  static Result<PeerDoor> Open(std::span<const PeerAddress> addresses);

  // Where it listens, with the ports.
  const Reachability& reachability() const { return reachability_; }

  // Adds what Serve is to be called for.
  void AddTo(std::vector<pollfd>& polled, Clock::time_point now) const;
  // When Serve is to be called at the latest.
  Clock::time_point Deadline() const;

  // Accepts connections, listens to what strangers say, and dismisses those that say something else
  // than the key, or nothing for too long. Never waits, and comes to an end however many there are.
  // key  of the job
  std::vector<Visitor> Serve(const JobKey& key, Clock::time_point now);

  size_t stranger_count() const { return strangers_.size(); }
  // Why the last connection could not be accepted: "accept: Too many open files (...)"; "" if all
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
