#include "lmdbio/comm/peer_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

namespace lmdbio::comm {
namespace {

UniqueFd OpenPidfd([[maybe_unused]] pid_t pid) {
#ifdef SYS_pidfd_open
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
  return UniqueFd();
#endif
}

UniqueFd OpenStatus(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/status";
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// The file stays that of its process: a later process of the same number has another.
bool HasEnded(const UniqueFd& status) {
  std::array<char, 4096> bytes{};
  const ssize_t got = ::pread(status.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return errno == ESRCH;
  // Until its parent reaps it. A zombie with more threads has lost its first one only.
  const std::string_view text(bytes.data(), static_cast<size_t>(got));
  return text.find("\nState:\tZ") != text.npos && text.find("\nThreads:\t1\n") != text.npos;
}

}  // namespace

void PeerWatch::Add(pid_t pid) {
  Process process;
  if (pid > 0) process.pidfd = OpenPidfd(pid);
  if (pid > 0 && !process.pidfd) process.status = OpenStatus(pid);
  processes_.push_back(std::move(process));
}

std::optional<size_t> PeerWatch::FindGone(size_t first) const {
  std::vector<pollfd> asked;
  asked.reserve(processes_.size());
  // poll ignores the descriptor -1.
  for (const Process& process : processes_) asked.push_back({process.pidfd.get(), POLLIN, 0});
  ::poll(asked.data(), asked.size(), 0);
  for (size_t i = first; i < asked.size(); ++i) {
    const UniqueFd& status = processes_[i].status;
    if ((asked[i].revents & POLLIN) != 0 || (status && HasEnded(status))) return i;
  }
  return std::nullopt;
}

}  // namespace lmdbio::comm
