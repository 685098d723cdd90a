// tests/support/in_child.h - a check in a child process, which may change the state that tests
// share: limits, users, mounts, descriptors, and the permitted system calls.
#ifndef LMDBIO_TESTS_SUPPORT_IN_CHILD_H_
#define LMDBIO_TESTS_SUPPORT_IN_CHILD_H_

#include <cstdint>
#include <functional>

namespace lmdbio::test {

// The result of the child.
enum class Verdict : int { kRight = 0, kWrong = 1, kCannotTell = 77 };

// Runs `check` in a forked child. A child that a signal ends, or that throws, is kWrong.
// Requires: no other thread runs
Verdict InChild(const std::function<Verdict()>& check);

enum class Interruption {
  kKill,   // the child ends, and then `meanwhile` is called
  kPause,  // the child waits for the end of `meanwhile`, and goes on
};

// Interrupts a child that does `work` at its first system call, then a new one at its second, and
// so on, until one ends by itself: once before each call and once after it. Returns the number of
// interruptions; 0 if this process may not trace its children. Throws std::runtime_error if the
// `work` of a child that is not killed returns false.
// Requires: no other thread runs
int InterruptAtEachCall(Interruption how, const std::function<bool()>& work,
                        const std::function<void()>& meanwhile);

// A system call that the kernel refuses with `error_number`: always, or if argument `argument`
// (from 0) has one of `argument_bits` set.
struct RefusedCall {
  long number = 0;  // SYS_...
  int error_number = 0;
  unsigned argument = 0;
  uint32_t argument_bits = 0;
};

// Refuses the call to this thread and to threads that it starts later, permanently. False if this
// process may not install a seccomp filter.
bool RefuseSystemCall(const RefusedCall& call);

// The same for new threads, as at the limit of processes (ulimit -u).
bool RefuseThreads();

// Refuses system calls to this process, if the environment asks for it: LMDBIO_TEST_NO_MEMFD for
// memory without a file, so that ranks share windows of MPI; LMDBIO_TEST_NO_LISTEN, so that ranks
// of MPI have no links. Ends the program with 77, a skip, if that is not possible.
void RefuseCallsIfAsked();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_IN_CHILD_H_
