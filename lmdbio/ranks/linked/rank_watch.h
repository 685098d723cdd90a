// lmdbio/ranks/linked/rank_watch.h - notices a rank of the job that has ended or is stopped.
//
// Each rank has a thread that sleeps at links to its neighbours in a tree of all ranks. The system
// closes the links of a process that is killed. Its neighbours notice that, and tell it to theirs.
// So all ranks name the same rank, within milliseconds, whatever they are doing.
//
// The thread also sends signs of life to its neighbours. It does so while the program computes or
// waits, so only a process that is stopped, or a host that has vanished, is silent.
//
// Source: docs/launchers.md "Ranks that end".
#ifndef LMDBIO_RANKS_LINKED_RANK_WATCH_H_
#define LMDBIO_RANKS_LINKED_RANK_WATCH_H_

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
  // links          to the neighbours, in both directions
  // neighbours     their numbers in `links`
  // silence_limit  a neighbour that is silent for longer counts as failed; the same on all ranks.
  //                Time in which this process was stopped itself does not count. 0: none does
  // Errors: kResourceExhausted  no thread
  // Cost: a message of 6 bytes to each neighbour, at most 2.5 times a second
  static Result<std::unique_ptr<RankWatch>> Start(std::unique_ptr<PeerLinks> links,
                                                  const std::vector<int>& neighbours,
                                                  std::chrono::milliseconds silence_limit);

  // Leaves in good order, unless a rank has failed. A rank that has left forwards nothing, so all
  // ranks should leave together.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Does not wait.
  // Errors: kPeerFailed  a rank has ended, or is silent; names it
  Status Check() const;
  // Waits for at most `limit` until a rank is known to have failed.
  // Errors: as Check
  Status CheckWithin(std::chrono::milliseconds limit) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct WatchedNeighbour {
    int number = 0;  // in links_
    std::chrono::nanoseconds silence{0};
    bool is_over = false;  // it has left or failed, and says nothing more of use
  };

  RankWatch(std::unique_ptr<PeerLinks> links, std::chrono::milliseconds silence_limit)
      : links_(std::move(links)), silence_limit_(silence_limit) {}
  void Run();
  void Hear(int from);
  void LookForSilence(Clock::time_point now);
  void SendSigns(Clock::time_point now);
  // from  the neighbour that has told it; -1: none
  void Record(const Error& failure, int from);

  std::unique_ptr<PeerLinks> links_;  // used by the thread, and by the destructor after it
  const std::chrono::milliseconds silence_limit_;
  std::vector<WatchedNeighbour> neighbours_;  // used as links_
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point next_sign_ = Clock::now();
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;  // of failure_
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LINKED_RANK_WATCH_H_
