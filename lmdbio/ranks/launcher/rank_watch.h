// lmdbio/ranks/launcher/rank_watch.h - notices a rank of the job that has ended.
//
// Each rank has a thread that sleeps at links to its neighbours in a tree of all ranks. The system
// closes the links of a process that is killed. Its neighbours notice that, and tell it to theirs.
// So all ranks name the same rank, within milliseconds, whatever they are doing.
//
// Source: docs/launchers.md "Ranks that end".
#ifndef LMDBIO_RANKS_LAUNCHER_RANK_WATCH_H_
#define LMDBIO_RANKS_LAUNCHER_RANK_WATCH_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// Threads: any.
class RankWatch {
 public:
  // links       to the neighbours, in both directions
  // neighbours  their numbers in `links`
  // Errors: kResourceExhausted  no thread
  static Result<std::unique_ptr<RankWatch>> Start(std::unique_ptr<PeerLinks> links,
                                                  std::vector<int> neighbours);

  // Leaves in good order, unless a rank has failed. A rank that has left forwards nothing, so all
  // ranks should leave together.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Does not wait.
  // Errors: kPeerFailed  a rank has ended; names it
  Status Check() const;
  // Waits for at most `limit` until a rank is known to have ended.
  // Errors: as Check
  Status CheckWithin(std::chrono::milliseconds limit) const;

 private:
  RankWatch(std::unique_ptr<PeerLinks> links, std::vector<int> neighbours)
      : links_(std::move(links)), neighbours_(std::move(neighbours)) {}
  void Run();
  void Record(const Error& failure, int from);

  std::unique_ptr<PeerLinks> links_;  // used by the thread, and by the destructor after it
  const std::vector<int> neighbours_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;  // of failure_
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_RANK_WATCH_H_
