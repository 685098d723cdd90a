// tests/ranks/pid_namespaces.h - runs processes in another pid namespace.
#ifndef LMDBIO_TESTS_RANKS_PID_NAMESPACES_H_
#define LMDBIO_TESTS_RANKS_PID_NAMESPACES_H_

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>

#include "tests/support/in_child.h"

namespace lmdbio::test {

// Runs `body` as the first process of a new pid namespace, where /proc is still that of the old
// one. kCannotTell without the privilege.
// Requires: no other thread runs
inline Verdict InNewPidNamespace(const std::function<Verdict()>& body) {
  return InChild(
      [&] { return ::unshare(CLONE_NEWPID) == 0 ? InChild(body) : Verdict::kCannotTell; });
}

// Starts a process of this very number in the caller's pid namespace, which pauses. Negative if
// that is not permitted.
inline pid_t StartNumbered(pid_t number) {
  clone_args args = {};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<uintptr_t>(&number);
  args.set_tid_size = 1;
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
  while (child == 0) ::pause();
  return child;
}

// Whether both can be done here.
inline bool HasPidNamespaces() {
  return InNewPidNamespace([] {
           return StartNumbered(4242) == 4242 ? Verdict::kRight : Verdict::kCannotTell;
         }) == Verdict::kRight;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_PID_NAMESPACES_H_
