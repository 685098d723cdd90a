// Goal: SIGBUS that is not of a guarded map does what it did before: it ends the process, or calls
// the handler of the program. (Losses of guarded maps: file_map_test.cc.)
#include "lmdbio/file/map/map_guard.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "lmdbio/base/align.h"
#include "lmdbio/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::file {
namespace {

using test::CheckInChild;
using test::Verdict;

// A map of one page, whose file has lost it.
struct LostPage {
  UniqueFd fd{::memfd_create("map_guard_test", MFD_CLOEXEC)};
  volatile std::byte* bytes = nullptr;

  LostPage() {
    const auto page_bytes = static_cast<off_t>(MemoryPageBytes());
    REQUIRE(::ftruncate(fd.get(), page_bytes) == 0);
    bytes = static_cast<std::byte*>(
        ::mmap(nullptr, MemoryPageBytes(), PROT_READ, MAP_SHARED, fd.get(), 0));
    REQUIRE(::ftruncate(fd.get(), 0) == 0);
  }
  Bytes span() const { return {const_cast<const std::byte*>(bytes), MemoryPageBytes()}; }
};

// The signal that ends a child which does `work` beside a guard of `page`; 0: it returns. The child
// has no handler before, not even that of a sanitizer.
int SignalThatEnds(const LostPage& page, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGBUS, SIG_DFL);
    const MapGuard guard(page.span(), page.fd.get());
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// The handler of a program. It leaves the fault by a jump, as a program might.
std::atomic<int> g_call_count{0};
std::atomic<void*> g_address{nullptr};
sigjmp_buf g_back;

void OnFault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  ++g_call_count;
  g_address.store(info->si_addr);
  siglongjmp(g_back, 1);
}

void SetHandler(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handler;
  REQUIRE(::sigaction(SIGBUS, &action, nullptr) == 0);
}

struct sigaction PresentHandler() {
  struct sigaction present = {};
  ::sigaction(SIGBUS, nullptr, &present);
  return present;
}

// True if touching the page called the program's handler.
bool CallsProgram(const volatile std::byte* page) {
  const int before = g_call_count.load();
  if (sigsetjmp(g_back, 1) == 0) static_cast<void>(*page);
  return g_call_count.load() > before;
}

TEST_CASE("SIGBUS at another address ends the process, beside guarded maps", "[map]") {
  const LostPage guarded;
  const LostPage foreign;
  CHECK(SignalThatEnds(guarded, [&] { static_cast<void>(*foreign.bytes); }) == SIGBUS);
  CHECK(SignalThatEnds(guarded, [&] { ::raise(SIGBUS); }) == SIGBUS);
  CHECK(SignalThatEnds(guarded, [&] { static_cast<void>(*guarded.bytes); }) == 0);
}

TEST_CASE("SIGBUS at another address calls the handler that the program had", "[map]") {
  CheckInChild([] {
    SetHandler(OnFault);
    const LostPage guarded;
    const LostPage foreign;
    const MapGuard guard(guarded.span(), guarded.fd.get());
    CHILD_CHECK(MapGuard::IsInForce());
    CHILD_CHECK(!CallsProgram(guarded.bytes));
    CHILD_CHECK(guard.loss().has_value());
    CHILD_CHECK(CallsProgram(foreign.bytes));
    CHILD_CHECK(CallsProgram(foreign.bytes));  // as often as it happens
    CHILD_CHECK(g_address.load() == const_cast<std::byte*>(foreign.bytes));
    return Verdict::kRight;
  });
}

TEST_CASE("An ignored SIGBUS of another process stays ignored", "[map]") {
  CheckInChild([] {
    std::signal(SIGBUS, SIG_IGN);
    const LostPage guarded;
    const MapGuard guard(guarded.span(), guarded.fd.get());
    ::raise(SIGBUS);
    return Verdict::kRight;
  });
}

TEST_CASE("A handler that is meant for one signal is called once", "[map]") {
  CheckInChild([] {
    struct sigaction once = {};
    once.sa_flags = static_cast<int>(SA_RESETHAND);
    once.sa_handler = [](int) { ++g_call_count; };
    CHILD_CHECK(::sigaction(SIGBUS, &once, nullptr) == 0);
    const LostPage guarded;
    const MapGuard guard(guarded.span(), guarded.fd.get());
    ::raise(SIGBUS);
    CHILD_CHECK(g_call_count.load() == 1);
    CHILD_CHECK(PresentHandler().sa_handler == SIG_DFL);
    return Verdict::kRight;
  });
}

TEST_CASE("The handler goes with the last guard", "[map]") {
  CheckInChild([] {
    SetHandler(OnFault);
    const LostPage page;
    {
      std::optional<MapGuard> first(std::in_place, page.span(), page.fd.get());
      const LostPage other;
      const MapGuard second(other.span(), other.fd.get());
      first.reset();
      CHILD_CHECK(PresentHandler().sa_sigaction != OnFault);
    }
    CHILD_CHECK(PresentHandler().sa_sigaction == OnFault);
    CHILD_CHECK(CallsProgram(page.bytes));
    return Verdict::kRight;
  });
}

TEST_CASE("A program that sets its handler later takes the guard away, and that is told", "[map]") {
  CheckInChild([] {
    const LostPage page;
    std::optional<MapGuard> guard(std::in_place, page.span(), page.fd.get());
    CHILD_CHECK(MapGuard::IsInForce());
    const struct sigaction ours = PresentHandler();
    SetHandler(OnFault);
    CHILD_CHECK(!MapGuard::IsInForce());
    CHILD_CHECK(CallsProgram(page.bytes));
    // The program's handler may call ours, so it is not removed.
    guard.reset();
    CHILD_CHECK(PresentHandler().sa_sigaction == OnFault);
    const LostPage other;
    const MapGuard later(other.span(), other.fd.get());
    CHILD_CHECK(!MapGuard::IsInForce());
    CHILD_CHECK(::sigaction(SIGBUS, &ours, nullptr) == 0);
    CHILD_CHECK(MapGuard::IsInForce());
    CHILD_CHECK(!CallsProgram(other.bytes));
    CHILD_CHECK(later.loss().has_value());
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::file
