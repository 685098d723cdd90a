// lmdbio/base/thread_usage.h - the processor time of one thread, and how long it had none.
#ifndef LMDBIO_BASE_THREAD_USAGE_H_
#define LMDBIO_BASE_THREAD_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio {

// Since the thread began, in nanoseconds.
struct ThreadUsage {
  uint64_t cpu_ns = 0;
  uint64_t run_delay_ns = 0;   // it could run, and had no core
  bool has_run_delay = false;  // whether this kernel counts that
};

// Threads: any; made by the thread that is watched.
// Lifetime: may outlive the thread
class ThreadWatch {
 public:
  // Watches the calling thread.
  ThreadWatch();

  // What the thread has used so far.
  // Errors: kNotFound  the thread has ended, or is one of another process (after fork)
  // Cost: four system calls
  Result<ThreadUsage> Read() const;

 private:
  pid_t thread_id_;
  clockid_t clock_ = 0;
  std::string schedule_path_;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_THREAD_USAGE_H_
