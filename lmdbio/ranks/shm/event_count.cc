#include "lmdbio/ranks/shm/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lmdbio::ranks {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Both calls leave out FUTEX_PRIVATE_FLAG, because the other side may be another process.

// Sleeps until FutexWake, for `limit`, or until a signal; not at all if `word` is not `expected`.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::milliseconds limit) {
  timespec timeout = {};
  timeout.tv_sec = static_cast<time_t>(limit.count() / 1000);
  timeout.tv_nsec = static_cast<decltype(timeout.tv_nsec)>(limit.count() % 1000 * 1'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// Wakes all sleepers.
void FutexWake(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

EventCount::Ticket EventCount::Prepare() {
  sleepers_.fetch_add(1);
  return {epoch_.load()};
}

void EventCount::Cancel() { sleepers_.fetch_sub(1); }

void EventCount::Wait(Ticket ticket, std::chrono::milliseconds limit) {
  if (limit.count() > 0) FutexWait(epoch_, ticket.epoch, limit);
  sleepers_.fetch_sub(1);
}

void EventCount::Wait(Ticket ticket, std::chrono::steady_clock::time_point deadline) {
  // Rounded up, so that a caller that loops until the deadline does not poll through its last
  // fraction of a millisecond.
  Wait(ticket,
       std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()));
}

void EventCount::Notify() {
  if (sleepers_.load() == 0) return;
  epoch_.fetch_add(1);
  FutexWake(epoch_);
}

}  // namespace lmdbio::ranks
