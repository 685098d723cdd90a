// lmdbio/base/thread_usage.h - the processor time of one thread, and its waits for a core.
#ifndef LMDBIO_BASE_THREAD_USAGE_H_
#define LMDBIO_BASE_THREAD_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio {

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
#endif  // LMDBIO_BASE_THREAD_USAGE_H_
