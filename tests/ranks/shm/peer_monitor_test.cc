// Goal: PeerMonitor finds every process that has ended, before and after its parent reaps it, with
// and without pidfds, and never confuses two processes.
#include "lmdbio/ranks/shm/peer_monitor.h"

#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "tests/ranks/pid_namespaces.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/file_bytes.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::ranks {
namespace {

using test::CheckInChild;
using test::RefuseSystemCall;
using test::Verdict;

// A process that publishes its identity and pauses until it is killed, at the latest with this
// object.
class Child {
 public:
  explicit Child(void (*body)() = [] {}) : told_(new (memory_.bytes().data()) Told) {
    pid_ = ::fork();
    if (pid_ == 0) {
      told_->identity = OwnIdentity();
      told_->is_there.store(true);
      body();
      while (true) ::pause();
    }
    while (!told_->is_there.load()) ::usleep(1000);
  }
  ~Child() {
    Kill();
    Reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  const ProcessIdentity& identity() const { return told_->identity; }
  // Afterwards it is a zombie, until it is reaped.
  void Kill() const {
    siginfo_t info;
    ::kill(pid_, SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void Reap() const { ::waitpid(pid_, nullptr, 0); }

 private:
  struct Told {
    ProcessIdentity identity;
    std::atomic<bool> is_there{false};
  };
  test::SharedBytes memory_{sizeof(Told)};
  Told* told_;
  pid_t pid_;
};

// A process goes on when its first thread ends alone.
void EndFirstThread() {
  std::thread([] {
    while (true) ::pause();
  }).detach();
  ::syscall(SYS_exit, 0);
}

// Runs `check` with pidfd_open and without.
void CheckBothWays(const std::function<Verdict()>& check) {
  const int refused_as = GENERATE(0, EPERM, ENOSYS);
  CAPTURE(refused_as);
  CheckInChild([&] {
    if (refused_as != 0 && !RefuseSystemCall({SYS_pidfd_open, refused_as})) {
      return Verdict::kCannotTell;
    }
    return check();
  });
}

Verdict TellsOfEveryEnd() {
  const std::array<Child, 3> children;
  PeerMonitor monitor;
  CHILD_CHECK(monitor.Add(OwnIdentity()));
  for (const Child& child : children) CHILD_CHECK(monitor.Add(child.identity()));
  CHILD_CHECK(!monitor.FindGone());
  for (const size_t i : {size_t{1}, size_t{0}, size_t{2}}) {
    children[i].Kill();
    CHILD_CHECK(monitor.FindGone(i + 1) == i + 1);
    if (i != 1) children[i].Reap();
    CHILD_CHECK(monitor.FindGone(i + 1) == i + 1);
  }
  children[1].Reap();
  CHILD_CHECK(monitor.FindGone() == size_t{1});
  CHILD_CHECK(monitor.FindGone(2) == size_t{2});
  CHILD_CHECK(!monitor.FindGone(4));
  return Verdict::kRight;
}

TEST_CASE("PeerMonitor finds every process that has ended", "[comm][peer_monitor]") {
  CheckBothWays(TellsOfEveryEnd);
}

TEST_CASE("PeerMonitor takes no process for gone that has a thread left", "[comm][peer_monitor]") {
  CheckBothWays([] {
    const Child child(EndFirstThread);
    PeerMonitor monitor;
    CHILD_CHECK(monitor.Add(child.identity()));
    // Until the kernel calls the first thread a zombie.
    const std::string path = "/proc/" + std::to_string(child.pid()) + "/stat";
    while (test::ReadWholeTextFile(path).find(") Z ") == std::string::npos) ::usleep(1000);
    CHILD_CHECK(!monitor.FindGone());
    child.Kill();
    CHILD_CHECK(monitor.FindGone() == size_t{0});
    return Verdict::kRight;
  });
}

TEST_CASE("PeerMonitor takes no later process of the same number for the peer",
          "[comm][peer_monitor]") {
  CheckBothWays([] {
    const Child later;
    ProcessIdentity peer = later.identity();
    CHILD_CHECK(peer.start_time > 0);
    --peer.start_time;
    PeerMonitor monitor;
    CHILD_CHECK(monitor.Add(later.identity()));
    CHILD_CHECK(monitor.Add(peer));
    CHILD_CHECK(monitor.FindGone() == size_t{1});
    return Verdict::kRight;
  });
}

TEST_CASE("PeerMonitor finds a peer that had ended before it was added", "[comm][peer_monitor]") {
  CheckInChild([] {
    const Child child;
    child.Kill();
    child.Reap();
    PeerMonitor monitor;
    CHILD_CHECK(monitor.Add(child.identity()));
    CHILD_CHECK(monitor.FindGone() == size_t{0});
    return Verdict::kRight;
  });
}

// A container may have a time namespace, whose clock is ahead. The kernel adds the difference to
// the start times of all processes.
TEST_CASE("PeerMonitor knows a process by whose clock it has started", "[comm][peer_monitor]") {
  CheckBothWays([] {
    const Child other;
    if (::unshare(CLONE_NEWTIME) != 0) return Verdict::kCannotTell;
    std::ofstream offsets("/proc/self/timens_offsets");
    if (!(offsets << "boottime 1000 0\n" << std::flush)) return Verdict::kCannotTell;
    return test::InChild([&] {
      PeerMonitor monitor;
      CHILD_CHECK(monitor.Add(other.identity()));
      CHILD_CHECK(!monitor.FindGone());
      ::kill(other.pid(), SIGKILL);  // its parent alone could wait for its end
      for (int tries = 0; tries < 10'000 && !monitor.FindGone(); ++tries) ::usleep(1000);
      CHILD_CHECK(monitor.FindGone() == size_t{0});
      return Verdict::kRight;
    });
  });
}

TEST_CASE("PeerMonitor says that it cannot watch a process of another pid namespace",
          "[comm][peer_monitor]") {
  if (!test::HasPidNamespaces()) {
    WARN("skipped: no pid namespaces can be made here");
    return;
  }
  CheckBothWays([] {
    const Child outside;
    const Verdict inside = test::InNewPidNamespace([&] {
      const pid_t same_number = test::StartNumbered(outside.pid());
      CHILD_CHECK(same_number == outside.pid());
      PeerMonitor monitor;
      CHILD_CHECK(!monitor.Add(outside.identity()));
      ::kill(same_number, SIGKILL);
      CHILD_CHECK(::waitpid(same_number, nullptr, 0) == same_number);
      CHILD_CHECK(!monitor.FindGone());
      return Verdict::kRight;
    });
    return inside;
  });
}

// A namespace that sees the /proc of another must not look its own numbers up there.
TEST_CASE("PeerMonitor watches within a pid namespace that has no /proc of its own",
          "[comm][peer_monitor]") {
  if (!test::HasPidNamespaces()) {
    WARN("skipped: no pid namespaces can be made here");
    return;
  }
  const bool has_pidfd = GENERATE(true, false);
  CAPTURE(has_pidfd);
  CheckInChild([&] {
    return test::InNewPidNamespace([&] {
      if (!has_pidfd && !RefuseSystemCall({SYS_pidfd_open, EPERM})) return Verdict::kCannotTell;
      const Child child;
      CHILD_CHECK(child.identity().pid == child.pid());
      PeerMonitor monitor;
      CHILD_CHECK(monitor.Add(child.identity()) == has_pidfd);
      CHILD_CHECK(!monitor.FindGone());
      child.Kill();
      CHILD_CHECK(monitor.FindGone() == (has_pidfd ? std::optional<size_t>(0) : std::nullopt));
      return Verdict::kRight;
    });
  });
}

}  // namespace
}  // namespace lmdbio::ranks
