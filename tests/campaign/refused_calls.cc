#include "tests/campaign/refused_calls.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tests/support/in_child.h"

namespace lmdbio::test {
namespace {

struct ListedCall {
  std::string_view name;
  long number = 0;
};

#define LMDBIO_LISTED(name) #name, SYS_##name

// The calls of the jobs, as strace shows them, and those on which they fall back.
constexpr std::array kRefusedCalls = {
    // Files
    ListedCall{LMDBIO_LISTED(openat)},
    ListedCall{LMDBIO_LISTED(pread64)},
    ListedCall{LMDBIO_LISTED(preadv)},
    ListedCall{LMDBIO_LISTED(preadv2)},
    ListedCall{LMDBIO_LISTED(lseek)},
    ListedCall{LMDBIO_LISTED(newfstatat)},
    ListedCall{LMDBIO_LISTED(fstat)},
    ListedCall{LMDBIO_LISTED(statx)},
    ListedCall{LMDBIO_LISTED(fstatfs)},
    ListedCall{LMDBIO_LISTED(getdents64)},
    ListedCall{LMDBIO_LISTED(fadvise64)},
    ListedCall{LMDBIO_LISTED(ftruncate)},
    ListedCall{LMDBIO_LISTED(fallocate)},
    ListedCall{LMDBIO_LISTED(flock)},
    ListedCall{LMDBIO_LISTED(fcntl)},
    ListedCall{LMDBIO_LISTED(readlink)},
    ListedCall{LMDBIO_LISTED(ioctl)},
    ListedCall{"cachestat", 451},
    ListedCall{LMDBIO_LISTED(io_uring_setup)},
    ListedCall{LMDBIO_LISTED(io_uring_enter)},
    ListedCall{LMDBIO_LISTED(io_uring_register)},
    // Memory
    ListedCall{LMDBIO_LISTED(memfd_create)},
    ListedCall{LMDBIO_LISTED(madvise)},
    ListedCall{LMDBIO_LISTED(mincore)},
    ListedCall{LMDBIO_LISTED(mremap)},
    ListedCall{LMDBIO_LISTED(mlock)},
    ListedCall{LMDBIO_LISTED(get_mempolicy)},
    ListedCall{LMDBIO_LISTED(set_mempolicy)},
    ListedCall{LMDBIO_LISTED(mbind)},
    // Sockets
    ListedCall{LMDBIO_LISTED(socket)},
    ListedCall{LMDBIO_LISTED(bind)},
    ListedCall{LMDBIO_LISTED(listen)},
    ListedCall{LMDBIO_LISTED(connect)},
    ListedCall{LMDBIO_LISTED(accept4)},
    ListedCall{LMDBIO_LISTED(sendto)},
    ListedCall{LMDBIO_LISTED(sendmsg)},
    ListedCall{LMDBIO_LISTED(recvfrom)},
    ListedCall{LMDBIO_LISTED(recvmsg)},
    ListedCall{LMDBIO_LISTED(getsockname)},
    ListedCall{LMDBIO_LISTED(getsockopt)},
    ListedCall{LMDBIO_LISTED(setsockopt)},
    ListedCall{LMDBIO_LISTED(shutdown)},
    ListedCall{LMDBIO_LISTED(poll)},
    ListedCall{LMDBIO_LISTED(ppoll)},
    ListedCall{LMDBIO_LISTED(eventfd2)},
    // Processes, threads and time
    ListedCall{LMDBIO_LISTED(clone3)},
    ListedCall{LMDBIO_LISTED(clone)},
    ListedCall{LMDBIO_LISTED(pidfd_open)},
    ListedCall{LMDBIO_LISTED(kill)},
    ListedCall{LMDBIO_LISTED(prctl)},
    ListedCall{LMDBIO_LISTED(prlimit64)},
    ListedCall{LMDBIO_LISTED(rt_sigaction)},
    ListedCall{LMDBIO_LISTED(rt_sigprocmask)},
    ListedCall{LMDBIO_LISTED(sched_getaffinity)},
    ListedCall{LMDBIO_LISTED(sched_setaffinity)},
    ListedCall{LMDBIO_LISTED(sched_getattr)},
    ListedCall{LMDBIO_LISTED(sched_setattr)},
    ListedCall{LMDBIO_LISTED(clock_nanosleep)},
    ListedCall{LMDBIO_LISTED(getrusage)},
    ListedCall{LMDBIO_LISTED(getrandom)},
    ListedCall{LMDBIO_LISTED(sysinfo)},
    ListedCall{LMDBIO_LISTED(uname)},
    ListedCall{LMDBIO_LISTED(set_robust_list)},
};

struct NeverRefused {
  ListedCall call;
  std::string_view why;
};

constexpr std::string_view kNeedsIt = "the C library cannot go on without it";
constexpr std::string_view kCannotFail = "it cannot fail, so its result is not looked at";
constexpr std::string_view kOfTheTest = "the test itself needs it";

constexpr std::array kNeverRefused = {
    NeverRefused{{LMDBIO_LISTED(mmap)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(munmap)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(mprotect)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(brk)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(futex)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(rseq)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(read)}, "no program starts without it"},
    NeverRefused{{LMDBIO_LISTED(exit)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(exit_group)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(rt_sigreturn)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(restart_syscall)}, kNeedsIt},
    NeverRefused{{LMDBIO_LISTED(close)}, kCannotFail},
    NeverRefused{{LMDBIO_LISTED(getpid)}, kCannotFail},
    NeverRefused{{LMDBIO_LISTED(gettid)}, kCannotFail},
    NeverRefused{{LMDBIO_LISTED(geteuid)}, kCannotFail},
    NeverRefused{{LMDBIO_LISTED(sched_yield)}, kCannotFail},
    NeverRefused{{LMDBIO_LISTED(clock_gettime)}, "the kernel answers it without a system call"},
    NeverRefused{{LMDBIO_LISTED(write)}, kOfTheTest},
};

#undef LMDBIO_LISTED

struct ListedError {
  std::string_view name;
  int number = 0;
};

constexpr std::array kErrors = {ListedError{"EPERM", EPERM}, ListedError{"ENOSYS", ENOSYS},
                                ListedError{"EACCES", EACCES}};

void Refuse(const ListedCall& call, const ListedError& error) {
  Need(RefuseSystemCall({.number = call.number, .error_number = error.number}),
       "a filter of system calls");
}

void OnUnlistedCall(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const std::string line = fmt::format("system call {} is not listed\n", info->si_syscall);
  static_cast<void>(::write(STDOUT_FILENO, line.data(), line.size()));
  ::_exit(1);
}

// Ends the process with a line at a call that no list has.
void TrapUnlistedCalls() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  throw NotHere("sanitizers make calls of their own");
#endif
  struct sigaction action = {};
  action.sa_sigaction = OnUnlistedCall;
  action.sa_flags = SA_SIGINFO;
  Need(::sigaction(SIGSYS, &action, nullptr) == 0, "a handler");
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  const auto allow = [&](const ListedCall& call) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call.number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  };
  for (const ListedCall& call : kRefusedCalls) allow(call);
  for (const NeverRefused& never : kNeverRefused) allow(never.call);
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  Need(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
       "a filter of system calls");
}

JobEnvironment CallEnvironment(std::string name, std::function<void(int rank)> enter_rank) {
  return {.name = std::move(name),
          .enter = {},
          .enter_rank = std::move(enter_rank),
          .breaks_programs = true};
}

}  // namespace

std::vector<JobEnvironment> RefusedCallEnvironments() {
  std::vector<JobEnvironment> list;
  for (const ListedCall& call : kRefusedCalls) {
    for (const ListedError& error : kErrors) {
      list.push_back(CallEnvironment(fmt::format("refused.{}.{}", call.name, error.name),
                                     [call, error](int) { Refuse(call, error); }));
    }
  }
  list.push_back(CallEnvironment("listed-calls", [](int) { TrapUnlistedCalls(); }));
  list.back().demand = Demand::kRightBytes;
  return list;
}

JobEnvironment TwoRefusedCalls(Random& random) {
  ListedCall first = kRefusedCalls[random.Below(kRefusedCalls.size())];
  ListedCall second = kRefusedCalls[random.Below(kRefusedCalls.size())];
  const ListedError first_error = kErrors[random.Below(kErrors.size())];
  const ListedError second_error = kErrors[random.Below(kErrors.size())];
  if (first.number == SYS_prctl) std::swap(first, second);  // which makes the other filter
  return CallEnvironment(fmt::format("refused.{}.{}+{}.{}", first.name, first_error.name,
                                     second.name, second_error.name),
                         [=](int) {
                           Refuse(first, first_error);
                           if (first.number != second.number) Refuse(second, second_error);
                         });
}

std::string NeverRefusedCalls() {
  std::string text;
  for (const NeverRefused& never : kNeverRefused) {
    text += fmt::format("  {}: {}\n", never.call.name, never.why);
  }
  return text;
}

}  // namespace lmdbio::test
