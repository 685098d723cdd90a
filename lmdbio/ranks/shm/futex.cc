#include "lmdbio/ranks/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lmdbio {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Not FUTEX_PRIVATE_FLAG: the waker may be another process.

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::milliseconds timeout) {
  timespec limit = {};
  limit.tv_sec = static_cast<time_t>(timeout.count() / 1000);
  limit.tv_nsec = static_cast<decltype(limit.tv_nsec)>(timeout.count() % 1000 * 1'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void FutexWake(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lmdbio
