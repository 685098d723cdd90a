#include "lmdbio/comm/peer_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lmdbio::comm {

PeerWatch::~PeerWatch() {
  for (const int fd : fds_) {
    if (fd >= 0) ::close(fd);
  }
}

void PeerWatch::Add(pid_t pid) {
#ifdef SYS_pidfd_open
  fds_.push_back(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
#else
  static_cast<void>(pid);
  fds_.push_back(-1);
#endif
}

std::optional<size_t> PeerWatch::FindGone(size_t first) const {
  std::vector<pollfd> asked;
  asked.reserve(fds_.size());
  for (const int fd : fds_) asked.push_back({fd, POLLIN, 0});  // poll ignores negative ones
  if (::poll(asked.data(), asked.size(), 0) <= 0) return std::nullopt;
  for (size_t i = first; i < asked.size(); ++i) {
    if ((asked[i].revents & POLLIN) != 0) return i;
  }
  return std::nullopt;
}

}  // namespace lmdbio::comm
