#include "tests/support/in_child.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace lmdbio::test {
namespace {

constexpr sock_filter Statement(unsigned code, uint32_t operand) {
  return {static_cast<uint16_t>(code), 0, 0, operand};
}

// Skips the next `otherwise` statements unless the accumulator and `operand` satisfy `comparison`.
constexpr sock_filter Unless(unsigned comparison, uint32_t operand, uint8_t otherwise) {
  return {static_cast<uint16_t>(BPF_JMP | comparison | BPF_K), 0, otherwise, operand};
}

constexpr unsigned kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr unsigned kReturn = BPF_RET | BPF_K;

// A child that stops before `work`. If it cannot be traced, it ends with 0 at once.
pid_t StartTraced(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(0);
  std::raise(SIGSTOP);
  ::_exit(work() ? 0 : 1);
}

}  // namespace

Verdict InChild(const std::function<Verdict()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    Verdict verdict = Verdict::kWrong;
    try {
      verdict = check();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    ::_exit(static_cast<int>(verdict));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? static_cast<Verdict>(WEXITSTATUS(status)) : Verdict::kWrong;
}

int InterruptAtEachCall(Interruption how, const std::function<bool()>& work,
                        const std::function<void()>& meanwhile) {
  for (int count = 0;; ++count) {
    const pid_t child = StartTraced(work);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) return 0;
    // The child stops before and after each system call.
    for (int i = 0; i <= count && WIFSTOPPED(status); ++i) {
      ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
      ::waitpid(child, &status, 0);
    }
    const bool is_over = !WIFSTOPPED(status);
    if (!is_over && how == Interruption::kKill) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      meanwhile();
      continue;
    }
    if (!is_over) {
      meanwhile();
      ::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
      ::waitpid(child, &status, 0);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      throw std::runtime_error("the work of the child failed, interrupted at call stop " +
                               std::to_string(count));
    }
    if (is_over) return count;
  }
}

bool RefuseSystemCall(const RefusedCall& call) {
  // The filter reads an argument as two halves; on a little-endian host the lower half is first.
  const auto argument = static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * call.argument);
  const uint8_t rest = call.argument_bits != 0 ? 3 : 1;
  std::vector<sock_filter> filter = {Statement(kLoad, offsetof(seccomp_data, nr)),
                                     Unless(BPF_JEQ, static_cast<uint32_t>(call.number), rest)};
  if (call.argument_bits != 0) {
    filter.push_back(Statement(kLoad, argument));
    filter.push_back(Unless(BPF_JSET, call.argument_bits, 1));
  }
  filter.push_back(
      Statement(kReturn, SECCOMP_RET_ERRNO | static_cast<uint32_t>(call.error_number)));
  filter.push_back(Statement(kReturn, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The C library falls back on clone, whose flags a filter can see.
bool RefuseThreads() {
  return RefuseSystemCall({.number = SYS_clone3, .error_number = ENOSYS}) &&
         RefuseSystemCall({.number = SYS_clone,
                           .error_number = EAGAIN,
                           .argument = 0,
                           .argument_bits = CLONE_THREAD});
}

void RefuseCallsIfAsked() {
  const auto refuse = [](const char* variable, long number) {
    if (std::getenv(variable) == nullptr) return;
    if (RefuseSystemCall({.number = number, .error_number = EPERM})) return;
    std::fprintf(stderr, "skipped: this system has no seccomp filters for us\n");
    std::exit(static_cast<int>(Verdict::kCannotTell));
  };
  refuse("LMDBIO_TEST_NO_MEMFD", SYS_memfd_create);
  refuse("LMDBIO_TEST_NO_LISTEN", SYS_listen);
}

}  // namespace lmdbio::test
