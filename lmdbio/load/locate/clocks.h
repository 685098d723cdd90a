// lmdbio/load/locate/clocks.h - the two clocks of the counters, and their sums.
#ifndef LMDBIO_LOAD_LOCATE_CLOCKS_H_
#define LMDBIO_LOAD_LOCATE_CLOCKS_H_

#include <atomic>
#include <chrono>
#include <ctime>

namespace lmdbio::load {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Adds to a sum that any thread may read. Only one thread may add, or updates are lost. The sums
// are statistics, so they order no other memory access.
template <typename T>
void Add(std::atomic<T>& sum, T more) {
  sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

// Processor time of the calling thread.
inline double ThreadCpuSeconds() {
  timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_CLOCKS_H_
