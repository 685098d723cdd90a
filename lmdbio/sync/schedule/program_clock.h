// lmdbio/sync/schedule/program_clock.h - the time of a program without its waits in lmdbio.
//
// Source: Hashemi et al. 4.1 (traced times of computing); docs/caramel.md "Times".
#ifndef LMDBIO_SYNC_SCHEDULE_PROGRAM_CLOCK_H_
#define LMDBIO_SYNC_SCHEDULE_PROGRAM_CLOCK_H_

#include <cstdint>
#include <thread>
#include <unordered_map>

namespace lmdbio::sync {

// The clock stands still while all threads wait that have lately waited. So computing beside a wait
// of another thread counts, and a wait of the only thread does not. All times are in nanoseconds;
// those of callers are of one steady clock, and rise.
//
// Pure: no clock of its own.
// Threads: one at a time.
class ProgramClock {
 public:
  // A thread that has not waited for so long counts no more: it may have ended.
  static constexpr int64_t kForgottenAfterNs = 10'000'000'000;

  void BeginWait(std::thread::id thread, int64_t now_ns);
  // Requires: BeginWait of that thread
  void EndWait(std::thread::id thread, int64_t now_ns);

  // The time since the first call of any function for which the clock went.
  int64_t Read(int64_t now_ns);

 private:
  struct WaitingThread {
    int waiting = 0;  // waits under way: a callback may wait within a wait
    int64_t seen_ns = 0;
  };
  void Advance(int64_t now_ns);
  bool stands_still() const { return waiting_count_ > 0 && waiting_count_ == waiters_.size(); }

  std::unordered_map<std::thread::id, WaitingThread> waiters_;
  size_t waiting_count_ = 0;  // waiters that wait
  int64_t last_ns_ = -1;      // of the last call; -1: none
  int64_t program_ns_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_PROGRAM_CLOCK_H_
