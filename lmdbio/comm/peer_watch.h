// lmdbio/comm/peer_watch.h - tells whether the other processes of a host still run.
#ifndef LMDBIO_COMM_PEER_WATCH_H_
#define LMDBIO_COMM_PEER_WATCH_H_

#include <sys/types.h>

#include <optional>
#include <vector>

namespace lmdbio::comm {

// Holds a pidfd for each process: it cannot be taken over by another process, and it tells of the
// end at once. Where the kernel has none, nobody is ever found gone.
// Threads: const methods from any number of threads.
class PeerWatch {
 public:
  PeerWatch() = default;
  PeerWatch(PeerWatch&& other) noexcept : fds_(std::move(other.fds_)) { other.fds_.clear(); }
  PeerWatch& operator=(PeerWatch&& other) noexcept {
    fds_.swap(other.fds_);
    return *this;
  }
  ~PeerWatch();

  // Adds the next process. Its index counts from 0. pid 0, or one out of sight, is never gone.
  void Add(pid_t pid);

  // The least index, from `first` on, of a process that has ended, if any has.
  std::optional<size_t> FindGone(size_t first = 0) const;

 private:
  std::vector<int> fds_;  // -1: cannot be watched
};

}  // namespace lmdbio::comm
#endif  // LMDBIO_COMM_PEER_WATCH_H_
