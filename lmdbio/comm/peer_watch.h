// lmdbio/comm/peer_watch.h - tells whether the other processes of a host still run.
#ifndef LMDBIO_COMM_PEER_WATCH_H_
#define LMDBIO_COMM_PEER_WATCH_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::comm {

// Holds a pidfd for each process, which tells of the end at once. Where an old kernel or a sandbox
// refuses pidfd_open, it holds the process's status file in /proc instead. Both belong to one
// process: a later one of the same number is never mistaken for it.
// Threads: const methods from any number of threads.
class PeerWatch {
 public:
  // Adds the next process. Its index counts from 0. A process of number 0, or one that this process
  // cannot see, is never found gone.
  void Add(pid_t pid);

  // The least index, from `first` on, of a process that has ended, if any has.
  // Cost: a system call; one more for each process without a pidfd
  std::optional<size_t> FindGone(size_t first = 0) const;

 private:
  struct Process {
    UniqueFd pidfd;
    UniqueFd status;  // if there is no pidfd
  };
  std::vector<Process> processes_;
};

}  // namespace lmdbio::comm
#endif  // LMDBIO_COMM_PEER_WATCH_H_
