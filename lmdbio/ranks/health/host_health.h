// lmdbio/ranks/health/host_health.h - signs of life between the ranks of a host, in shared memory.
//
// Each rank increments a counter whenever it checks the others. The others detect a rank whose
// process has ended at their next check, and a stopped rank after the silence limit. The first
// failure that a rank detects is recorded for all, so all ranks report the same text.
//
// Source: docs/sync.md "Failures".
#ifndef LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/shm/failure_cell.h"
#include "lmdbio/ranks/shm/peer_monitor.h"

namespace lmdbio::ranks {

// Threads: any.
class HostHealth final : public Health {
 public:
  // Collective over `group`: the ranks of each of its hosts watch each other. Each must call Check
  // at least four times within the limit.
  // silence_limit  a rank without a sign of life for longer has failed; time in which this rank did
  //                not check does not count
  // Errors: kResourceExhausted  no shared memory on this host; kInternal
  //         kPeerFailed         no shared memory on another host
  static Result<std::unique_ptr<HostHealth>> Create(Group& group,
                                                    std::chrono::milliseconds silence_limit);

  // After a failure the memory is abandoned (SharedMemory::Abandon), because ended peers cannot
  // release it.
  ~HostHealth() override;

  Status Check() override;
  void GiveUp(const Error& why) override;

  // The text of the recorded failure; "" if there is none. Does not look at the peers.
  std::string failure();

 private:
  struct WatchedRank;
  HostHealth() = default;
  FailureCell& cell() const;
  WatchedRank& peer(size_t index) const;
  void Record(const std::string& text, int error_number);
  std::string FindFailure(std::chrono::nanoseconds looked_for);

  // The last sign of a peer, and the time for which this rank has seen the same sign.
  struct Seen {
    uint64_t sign = 0;
    std::chrono::nanoseconds silence{0};
  };

  std::chrono::milliseconds silence_limit_{0};
  std::vector<std::string> names_;  // [ranks of the host] "rank 3"
  int rank_ = 0;
  size_t own_ = 0;  // the index of this rank among the ranks of the host
  std::unique_ptr<SharedMemory> memory_;
  std::optional<FailureReader> failure_;
  PeerMonitor monitor_;
  std::mutex mutex_;  // guards the members below
  std::vector<Seen> seen_;
  std::chrono::steady_clock::time_point last_look_{};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_
