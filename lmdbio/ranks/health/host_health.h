// lmdbio/ranks/health/host_health.h - signs of life between the ranks of a host, in memory that
// they share.
//
// Each rank writes when it was last seen alive, whenever it looks at the others. A rank whose
// process has ended is found at once, one that is stopped after a time of silence. What one rank
// finds, all of them hear in the same words.
//
// Source: docs/sync.md "Failures".
#ifndef LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/shm/peer_monitor.h"

namespace lmdbio::ranks {

// Threads: any.
class HostHealth final : public Health {
 public:
  // Collective over `group`: the ranks of each of its hosts watch each other. Each must call Check
  // at least four times within the limit.
  // silence_limit  of a rank that has failed; time in which this rank did not look does not count
  // Errors: kResourceExhausted  no shared memory on this host; kInternal
  //         kPeerFailed         none on another
  static Result<std::unique_ptr<HostHealth>> Create(Group& group,
                                                    std::chrono::milliseconds silence_limit);

  // After a failure the memory is left to MPI_Finalize: peers that are gone cannot release it.
  ~HostHealth() override;

  Status Check() override;
  void GiveUp(const Error& why) override;

  // What has failed, as far as somebody has told; "" if nothing has. Looks at nobody.
  std::string failure() const;

 private:
  struct FailureCell;
  struct Peer;
  HostHealth() = default;
  FailureCell& board() const;
  Peer& peer(size_t index) const;
  void TellAll(const std::string& why);
  void LookAtWriter(std::chrono::nanoseconds looked_for);
  std::string FindFailure(std::chrono::nanoseconds looked_for);

  // How long a peer's sign has stayed the same while this rank looked.
  struct Seen {
    uint64_t sign = 0;
    std::chrono::nanoseconds silence{0};
  };

  std::chrono::milliseconds silence_limit_{0};
  std::vector<std::string> names_;  // [ranks of the host] "rank 3"
  size_t own_ = 0;
  std::unique_ptr<SharedMemory> memory_;
  PeerMonitor monitor_;
  std::mutex mutex_;
  std::vector<Seen> seen_;
  bool sees_writer_ = false;                // somebody was telling of a failure, and was not done
  std::chrono::nanoseconds unsaid_for_{0};  // since then
  std::chrono::steady_clock::time_point last_look_{};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_HOST_HEALTH_H_
