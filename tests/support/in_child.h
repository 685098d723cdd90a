// tests/support/in_child.h - a check in a process of its own, which may change what tests share:
// limits, users, mounts, descriptors, and which system calls the kernel answers.
#ifndef TESTS_SUPPORT_IN_CHILD_H_
#define TESTS_SUPPORT_IN_CHILD_H_

#include <cstdint>
#include <functional>

namespace lmdbio::test {

// What the child found out.
enum class Verdict : int { kRight = 0, kWrong = 1, kCannotTell = 77 };

// Runs `check` in a forked child. One that a signal ends, or that throws, is kWrong.
// Requires: no other thread runs
Verdict InChild(const std::function<Verdict()>& check);

// A system call that the kernel refuses with `error_number`: always, or if argument `argument`
// (from 0) has one of `argument_bits` set.
struct RefusedCall {
  long number = 0;  // SYS_...
  int error_number = 0;
  unsigned argument = 0;
  uint32_t argument_bits = 0;
};

// Refuses the call to this thread and those that it starts from now on, for good. False if this
// system has no seccomp filters for us.
bool RefuseSystemCall(const RefusedCall& call);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_IN_CHILD_H_
