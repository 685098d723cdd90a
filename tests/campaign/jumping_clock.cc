#include "tests/campaign/jumping_clock.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace {

std::atomic<bool> jumps{false};
std::atomic<uint32_t> looks{0};

// Days, back and forth.
time_t NextShift() {
  if (!jumps.load(std::memory_order_relaxed)) return 0;
  const uint32_t step = looks.fetch_add(1, std::memory_order_relaxed) * 2'654'435'761U;
  return (static_cast<time_t>(step >> 16) % 2'000 - 1'000) * 86'400;
}

}  // namespace

// The linker takes these before those of the C library, also for calls of shared libraries.
extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto code = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME && code == 0) now->tv_sec += NextShift();
  return code;
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  timespec exact = {};
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  *now = {exact.tv_sec, exact.tv_nsec / 1'000};
  return 0;
}

time_t time(time_t* seconds) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"

namespace lmdbio::test {

void LetClockJump() { jumps.store(true); }

}  // namespace lmdbio::test
