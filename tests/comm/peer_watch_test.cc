// Goal: PeerWatch tells of every process that has ended, before and after its parent reaps it, by a
// pidfd and where a sandbox or an old kernel has none.
#include "lmdbio/comm/peer_watch.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::comm {
namespace {

using test::CheckInChild;
using test::RefuseSystemCall;
using test::Verdict;

// A process that pauses until it is killed, with this object at the latest.
class Child {
 public:
  explicit Child(void (*body)() = [] {}) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    while (true) ::pause();
  }
  ~Child() {
    Kill();
    Reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Afterwards it is a zombie, until it is reaped.
  void Kill() const {
    siginfo_t info;
    ::kill(pid_, SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void Reap() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

// A process goes on when its first thread ends alone.
void EndFirstThread() {
  std::thread([] {
    while (true) ::pause();
  }).detach();
  ::syscall(SYS_exit, 0);
}

Verdict TellsOfEveryEnd() {
  const std::array<Child, 3> children;
  PeerWatch watch;
  watch.Add(0);
  for (const Child& child : children) watch.Add(child.pid());
  CHILD_CHECK(!watch.FindGone());
  for (const size_t i : {size_t{1}, size_t{0}, size_t{2}}) {
    children[i].Kill();
    CHILD_CHECK(watch.FindGone(i + 1) == i + 1);
    if (i != 1) children[i].Reap();
    CHILD_CHECK(watch.FindGone(i + 1) == i + 1);
  }
  children[1].Reap();
  CHILD_CHECK(watch.FindGone() == size_t{1});
  CHILD_CHECK(watch.FindGone(2) == size_t{2});
  CHILD_CHECK(!watch.FindGone(4));
  return Verdict::kRight;
}

TEST_CASE("PeerWatch tells of every process that has ended", "[comm][peer_watch]") {
  CheckInChild(TellsOfEveryEnd);
}

TEST_CASE("PeerWatch does without pidfd_open", "[comm][peer_watch][fault]") {
  const int error_number = GENERATE(EPERM, ENOSYS);
  CAPTURE(error_number);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_pidfd_open, error_number})) return Verdict::kCannotTell;
    return TellsOfEveryEnd();
  });
}

TEST_CASE("PeerWatch takes no process for gone that has a thread left",
          "[comm][peer_watch][fault]") {
  const bool has_pidfd = GENERATE(true, false);
  CAPTURE(has_pidfd);
  CheckInChild([&] {
    if (!has_pidfd && !RefuseSystemCall({SYS_pidfd_open, EPERM})) return Verdict::kCannotTell;
    const Child child(EndFirstThread);
    PeerWatch watch;
    watch.Add(child.pid());
    // Until the kernel calls the first thread a zombie.
    const std::string path = "/proc/" + std::to_string(child.pid()) + "/stat";
    while (test::ReadWholeTextFile(path).find(") Z ") == std::string::npos) ::usleep(1000);
    CHILD_CHECK(!watch.FindGone());
    child.Kill();
    CHILD_CHECK(watch.FindGone() == size_t{0});
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::comm
