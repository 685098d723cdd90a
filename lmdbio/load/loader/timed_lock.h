// lmdbio/load/loader/timed_lock.h - a mutex with a time limit that does not depend on the clock of
// the system, and that the thread sanitizer knows.
#ifndef LMDBIO_LOAD_LOADER_TIMED_LOCK_H_
#define LMDBIO_LOAD_LOADER_TIMED_LOCK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lmdbio::load {

// As std::timed_mutex, whose waits on a steady clock GCC 12's thread sanitizer does not see. For
// std::lock_guard and std::unique_lock, hence the names.
// Threads: any.
class TimedLock {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    released_.wait(guard, [this] { return !is_held_; });
    is_held_ = true;
  }
  bool try_lock() {
    const std::lock_guard guard(mutex_);
    if (is_held_) return false;
    is_held_ = true;
    return true;
  }
  bool try_lock_until(std::chrono::steady_clock::time_point limit) {
    std::unique_lock guard(mutex_);
    if (!released_.wait_until(guard, limit, [this] { return !is_held_; })) return false;
    is_held_ = true;
    return true;
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex_);
      is_held_ = false;
    }
    released_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_held_ = false;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_TIMED_LOCK_H_
