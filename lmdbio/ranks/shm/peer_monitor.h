// lmdbio/ranks/shm/peer_monitor.h - tells whether the other processes of a host still run.
//
// A process number alone names no process: every pid namespace has its own numbers, and the kernel
// reuses them. So each process publishes its identity in memory that its peers share.
#ifndef LMDBIO_RANKS_SHM_PEER_MONITOR_H_
#define LMDBIO_RANKS_SHM_PEER_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::ranks {

// One process among all that this host has run since it was started.
struct ProcessIdentity {
  uint64_t pid_namespace = 0;  // inode of the namespace that the number belongs to; 0: unknown
  uint64_t start_time = 0;     // clock ticks since the host was started; 0: unknown
  int32_t pid = 0;             // within its namespace
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
static_assert(std::is_trivially_copyable_v<ProcessIdentity>);

// Of the calling process. Without /proc only the number is known.
ProcessIdentity OwnIdentity();

// Holds a pidfd for each process, which tells of the end at once. Where an old kernel or a sandbox
// refuses pidfd_open, it holds the process's stat file in /proc instead. Both belong to one
// process: a later one of the same number is never mistaken for it.
// Threads: const methods from any number of threads.
class PeerMonitor {
 public:
  // Adds the next process. Its index counts from 0. False if its end will not be noticed: it is in
  // another pid namespace, or neither pidfd_open nor /proc is permitted. (Where no process knows
  // its namespace, all count as in one.) This process itself is never found gone.
  bool Add(const ProcessIdentity& peer);

  // The least index, from `first` on, of a process that has ended, if any has.
  // Cost: a system call; one more for each process without a pidfd
  std::optional<size_t> FindGone(size_t first = 0) const;

 private:
  struct Peer {
    UniqueFd pidfd;
    UniqueFd stat;         // if there is no pidfd
    bool is_gone = false;  // it had ended when it was added
  };
  std::vector<Peer> peers_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_PEER_MONITOR_H_
