// lmdbio/ranks/shm/peer_monitor.h - finds processes of the host that have ended.
//
// A process number does not identify a process: every pid namespace has its own numbers, and the
// kernel reuses them. So each process publishes a ProcessIdentity in memory that its peers share.
#ifndef LMDBIO_RANKS_SHM_PEER_MONITOR_H_
#define LMDBIO_RANKS_SHM_PEER_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::ranks {

// Identifies one process among all that this host has run since its start.
struct ProcessIdentity {
  uint64_t pid_namespace = 0;  // inode of the namespace of the number; 0: unknown
  uint64_t start_time = 0;     // clock ticks since the start of the host; 0: unknown
  // Inode of the namespace of that clock, which may be ahead of the host's; 0: unknown.
  uint64_t time_namespace = 0;
  int32_t pid = 0;  // within its namespace
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
static_assert(std::is_trivially_copyable_v<ProcessIdentity>);

// The identity of the calling process. Without /proc only the number is known.
ProcessIdentity OwnIdentity();

// Holds a pidfd for each process, which becomes readable when the process ends. If an old kernel or
// a sandbox refuses pidfd_open, it holds the stat file of the process in /proc instead. Both refer
// to one process, never to a later one of the same number.
// Threads: const methods from any number of threads.
class PeerMonitor {
 public:
  // Adds the next process. Its index counts from 0. False if the monitor cannot notice its end: it
  // is in another pid namespace, or neither pidfd_open nor /proc is permitted. (If no process knows
  // its namespace, all count as being in one.) This process itself never counts as ended.
  bool Add(const ProcessIdentity& peer);

  // The least index, from `first` on, of a process that has ended, if any has.
  // Cost: a system call; one more for each process without a pidfd
  std::optional<size_t> FindGone(size_t first = 0) const;

 private:
  struct MonitoredPeer {
    UniqueFd pidfd;
    UniqueFd stat;         // if there is no pidfd
    bool is_gone = false;  // it had ended when it was added
  };
  std::vector<MonitoredPeer> peers_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_PEER_MONITOR_H_
