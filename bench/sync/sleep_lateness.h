// bench/sync/sleep_lateness.h - how late the timed sleeps of threads end.
//
// This program takes the place of nanosleep, as mpi_call_count.h takes the place of MPI's calls. So
// the library needs no clock of its own for this measurement and pays nothing for it, and every
// timed sleep of its helper thread counts: the cycles of `cycle` and `gs`, the pauses between the
// tests of `nbcs`. A thread that waits for a wake-up (`event`) has no agreed end of its sleep, so
// it has no lateness; ThreadTime has its run delay and its starts.
#ifndef LMDBIO_BENCH_SYNC_SLEEP_LATENESS_H_
#define LMDBIO_BENCH_SYNC_SLEEP_LATENESS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/types.h>

namespace lmdbio::bench {

// Numbers of sleeps by their lateness: the time asleep less the time asked for. Classes of lateness
// differ by at most a sixteenth.
class LatenessCounts {
 public:
  static constexpr size_t kClassCount = 640;
  // late_ns  any; more than 2^43 ns belongs to the last class
  static size_t ClassOf(uint64_t late_ns);

  void Add(uint64_t late_ns, uint64_t count = 1) { counts_[ClassOf(late_ns)] += count; }
  void AddToClass(size_t place, uint64_t count) { counts_[place] += count; }
  LatenessCounts operator-(const LatenessCounts& before) const;

  uint64_t sleep_count() const;
  // The q-th quantile (0 to 1) in nanoseconds, as the middle of its class; 0 without sleeps.
  double QuantileNs(double q) const;

 private:
  std::array<uint64_t, kClassCount> counts_{};
};

// All sleeps of these threads so far. Threads: any
LatenessCounts LatenessOf(const std::vector<pid_t>& threads);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_SLEEP_LATENESS_H_
