// lmdbio/load/locate/clocks.h - the two clocks that counters are kept by, and how they are added
// up.
#ifndef LMDBIO_LOAD_LOCATE_CLOCKS_H_
#define LMDBIO_LOAD_LOCATE_CLOCKS_H_

#include <atomic>
#include <chrono>
#include <ctime>

namespace lmdbio::load {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Adds to a sum that any thread may look at. Only one thread adds, so no update is lost.
// Statistics: nothing is ordered by these.
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
