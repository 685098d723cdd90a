// lmdbio/base/thread_times.h - the time slices of a thread, its processor time, its waits for a
// core, and its pauses between two looks at something.
//
// A thread with short slices gets no more processor time, but gets it sooner. A thread that works
// for a few microseconds after each wake-up does not wait for the long slices of computing threads
// to end. The call needs no privilege.
//
// See Documentation/scheduler/sched-eevdf.rst of Linux, and sched_setattr(2).
#ifndef LMDBIO_BASE_THREAD_TIMES_H_
#define LMDBIO_BASE_THREAD_TIMES_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio {

// The shortest slice that the kernel grants.
constexpr auto kShortSlice = std::chrono::microseconds(100);

// The slice of the calling thread. nullopt if the kernel does not report it (before Linux 6.12) or
// forbids the call.
std::optional<std::chrono::nanoseconds> ThreadSlice();

// Gives the calling thread, and the threads that it starts later, slices of kShortSlice. Does
// nothing if the kernel has no slices for single threads (before Linux 6.12), if it forbids the
// call, or if the thread has a realtime policy.
void ShortenThreadSlices();

// The pauses of a thread that looks until something is done, as work on a GPU. It looks for
// kLookTime, and then sleeps for a part of its time so far between two looks. So it notices the end
// soon, and needs little of a core if that takes long.
//
// The kernel lets a sleep end later by the timer slack of its thread, 50 us by default. Once a
// thread has slept here, it has the least slack until this object ends. See prctl(2).
//
// Threads: the one that made it
class LookPauses {
 public:
  static constexpr auto kLookTime = std::chrono::microseconds(50);
  static constexpr auto kPauseMin = std::chrono::microseconds(5);
  static constexpr auto kPauseMax = std::chrono::microseconds(100);
  static constexpr int kPart = 16;

  LookPauses() = default;
  ~LookPauses();
  LookPauses(const LookPauses&) = delete;
  LookPauses& operator=(const LookPauses&) = delete;

  // After a look that found nothing: another thread may run, or this one sleeps.
  void Pause();

 private:
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<int> slack_before_;  // nanoseconds; once it was changed
};

// Totals since the thread began, in nanoseconds.
struct ThreadUsage {
  uint64_t cpu_ns = 0;
  uint64_t run_delay_ns = 0;   // time in which the thread was runnable and had no core
  bool has_run_delay = false;  // whether the kernel counts run_delay_ns
};

// Threads: any thread may call Read; the constructor runs in the watched thread.
// Lifetime: may outlive the watched thread
class ThreadWatch {
 public:
  // Watches the calling thread.
  ThreadWatch();

  // The usage of the thread so far.
  // Errors: kNotFound  the thread has ended, or belongs to another process (after fork)
  // Cost: four system calls
  Result<ThreadUsage> Read() const;

 private:
  pid_t thread_id_;
  clockid_t clock_ = 0;
  std::string schedule_path_;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_THREAD_TIMES_H_
