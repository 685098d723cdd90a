// lmdbio/ranks/shm/event_count.h - sleep until another thread or process changes shared words.
//
// An event count lies beside the words of a condition, in private or in shared memory. It does not
// know the condition. The two sides take these steps:
//
//   waiter    W1 raise the count of sleepers   (Prepare)
//             W2 read the epoch                (Prepare)
//             W3 look at the condition
//             W4 sleep unless the epoch has changed since W2; lower the count   (Wait)
//   notifier  N1 change the words of the condition
//             N2 read the count of sleepers; return if it is 0   (Notify)
//             N3 raise the epoch                                 (Notify)
//             N4 wake all sleepers                               (Notify)
//
// No wake-up is lost if N1 and W3 are sequentially consistent atomic operations, as W1, W2, N2 and
// N3 are. All six then have one total order:
//
// - N2 before W1: N1 is before W3, so the waiter sees the change and does not sleep.
// - W1 before N2, N3 before W2: N1 is before W3 again.
// - W1 before N2, W2 before N3: the kernel compares the epoch and queues the waiter under one lock,
//   which N4 takes too. So W4 finds another epoch and returns, or N4 finds the waiter and wakes it.
//
// An N1 that is only a release store would break the first case: the processor may run N2 before
// it. Plain data may travel with the words as usual, written before N1 and read after W3.
//
// 2^32 notifications between W2 and W4 look like none. A waiter that is killed in W4 leaves the
// count too high: each later Notify then costs a system call, and still wakes every sleeper.
//
// Source: dissertation 8.3.2 (what busy waiting costs); docs/architecture.md "Waiting".
#ifndef LMDBIO_RANKS_SHM_EVENT_COUNT_H_
#define LMDBIO_RANKS_SHM_EVENT_COUNT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <type_traits>

namespace lmdbio::ranks {

// Zero bytes are a valid event count, so zero-filled shared memory needs no construction.
// Threads: any, of all processes that map the memory.
class EventCount {
 public:
  // The epoch that a waiter has seen.
  struct Ticket {
    uint32_t epoch = 0;
  };

  // Announces a sleeper. The caller looks at its condition next, then calls Wait or Cancel once.
  Ticket Prepare();

  // Withdraws the announcement, because the condition holds.
  void Cancel();

  // Sleeps until Notify is called after Prepare, or for `limit` at most. A limit of 0 or less only
  // withdraws the announcement. May return early, so the caller looks at its condition again.
  void Wait(Ticket ticket, std::chrono::milliseconds limit);
  // The same with a point in time.
  void Wait(Ticket ticket, std::chrono::steady_clock::time_point deadline);

  // Prepare, look, and Wait or Cancel.
  // is_met  bool(); the condition, read with sequentially consistent operations
  // until   milliseconds or a deadline, as Wait
  template <typename Condition, typename Until>
  void WaitUnless(const Condition& is_met, Until until) {
    const Ticket ticket = Prepare();
    if (is_met()) {
      Cancel();
    } else {
      Wait(ticket, until);
    }
  }

  // Wakes all sleepers.
  // Cost: one load if there are none; else a system call
  void Notify();

  // Whether a Notify now would make a system call, for callers that first decide whether the change
  // matters to a sleeper. Sequentially consistent, as N2.
  bool has_sleepers() const { return sleepers_.load() != 0; }

 private:
  std::atomic<uint32_t> epoch_{0};  // the futex word
  std::atomic<uint32_t> sleepers_{0};
};

static_assert(std::is_standard_layout_v<EventCount> && sizeof(EventCount) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_EVENT_COUNT_H_
