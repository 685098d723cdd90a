#include "lmdbio/ranks/shm/peer_monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

namespace lmdbio::ranks {
namespace {

// Fields of the line in /proc/PID/stat, proc_pid_stat(5).
struct ProcessStat {
  int error_number = 0;  // of a failed read: ESRCH after the parent has reaped the process
  char state = 0;
  uint64_t thread_count = 0;
  uint64_t start_time = 0;
};

// process  its number, or "self"
UniqueFd OpenStat(const std::string& process) {
  const std::string path = "/proc/" + process + "/stat";
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// file  an invalid descriptor gives an empty result
ProcessStat ReadStat(const UniqueFd& file) {
  // The second field is the name, in parentheses. It may contain any character, so the search for
  // its end begins at the back.
  constexpr size_t kStateField = 3;
  constexpr size_t kThreadCountField = 20;
  constexpr size_t kStartTimeField = 22;
  std::array<char, 1024> bytes{};
  const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  ProcessStat stat;
  if (got < 0) stat.error_number = errno;
  std::string_view text(bytes.data(), got < 0 ? 0 : static_cast<size_t>(got));
  text.remove_prefix(text.rfind(')') + 1);  // npos + 1 is 0
  for (size_t field = kStateField; field <= kStartTimeField && text.size() > 1; ++field) {
    text.remove_prefix(1);  // the blank
    const std::string_view word = text.substr(0, text.find(' '));
    uint64_t number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number);
    if (field == kStateField && !word.empty()) stat.state = word.front();
    if (field == kThreadCountField) stat.thread_count = number;
    if (field == kStartTimeField) stat.start_time = number;
    text.remove_prefix(word.size());
  }
  return stat;
}

// Whether /proc shows the processes of this pid namespace. A process may see the /proc of another
// namespace, in which its numbers belong to other processes.
bool ProcIsOurs() {
  std::array<char, 32> number{};
  const ssize_t got = ::readlink("/proc/self", number.data(), number.size());
  return got > 0 &&
         std::string_view(number.data(), static_cast<size_t>(got)) == std::to_string(::getpid());
}

UniqueFd OpenPidfd([[maybe_unused]] pid_t pid) {
#ifdef SYS_pidfd_open
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
  errno = ENOSYS;
  return UniqueFd();
#endif
}

// An open stat file stays that of its process. A later process of the same number has another file.
bool HasEnded(const UniqueFd& file) {
  const ProcessStat stat = ReadStat(file);
  // A zombie has ended, and its parent has not reaped it. A zombie with several threads has only
  // lost its first thread.
  return stat.error_number == ESRCH || (stat.state == 'Z' && stat.thread_count == 1);
}

// kind  "pid", "time"
uint64_t NamespaceInode(const std::string& kind) {
  struct stat found = {};
  return ::stat(("/proc/self/ns/" + kind).c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace

ProcessIdentity OwnIdentity() {
  ProcessIdentity own;
  own.pid = ::getpid();
  own.pid_namespace = NamespaceInode("pid");
  own.time_namespace = NamespaceInode("time");
  own.start_time = ReadStat(OpenStat("self")).start_time;
  return own;
}

bool PeerMonitor::Add(const ProcessIdentity& peer) {
  MonitoredPeer& added = peers_.emplace_back();
  const ProcessIdentity own = OwnIdentity();
  if (peer == own) return true;
  if (peer.pid <= 0 || peer.pid_namespace != own.pid_namespace) return false;
  added.pidfd = OpenPidfd(peer.pid);
  added.is_gone = !added.pidfd && errno == ESRCH;
  if (added.is_gone || !ProcIsOurs()) return added.is_gone || added.pidfd;
  added.stat = OpenStat(std::to_string(peer.pid));
  const uint64_t start_time = ReadStat(added.stat).start_time;
  // With another start time, the number belongs to a later process. The kernel shows each start
  // time by the clock of this process.
  const bool is_same_clock = peer.time_namespace == own.time_namespace;
  added.is_gone =
      is_same_clock && start_time != 0 && peer.start_time != 0 && start_time != peer.start_time;
  if (added.pidfd || added.is_gone) added.stat = UniqueFd();
  return added.pidfd || added.stat || added.is_gone;
}

std::optional<size_t> PeerMonitor::FindGone(size_t first) const {
  std::vector<pollfd> asked;
  asked.reserve(peers_.size());
  // poll ignores the descriptor -1.
  for (const MonitoredPeer& peer : peers_) asked.push_back({peer.pidfd.get(), POLLIN, 0});
  ::poll(asked.data(), asked.size(), 0);
  for (size_t i = first; i < asked.size(); ++i) {
    const MonitoredPeer& peer = peers_[i];
    const bool has_ended = (asked[i].revents & POLLIN) != 0 || (peer.stat && HasEnded(peer.stat));
    if (peer.is_gone || has_ended) return i;
  }
  return std::nullopt;
}

}  // namespace lmdbio::ranks
