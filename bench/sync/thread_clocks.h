// bench/sync/thread_clocks.h - the processor time of threads, of this process and of the
// whole machine; how threads get and lose their cores, and which cores.
#ifndef LMDBIO_BENCH_SYNC_THREAD_CLOCKS_H_
#define LMDBIO_BENCH_SYNC_THREAD_CLOCKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"

namespace lmdbio::bench {

struct ThreadTime {
  uint64_t cpu_ns = 0;        // by the thread's own clock
  uint64_t run_delay_ns = 0;  // for which it could run and had no core; 0 if the kernel keeps none
  uint64_t start_count = 0;   // how often it got a core; 0 if the kernel keeps none
  // How often it lost its core although it could run on. Linux counts a yield among them.
  uint64_t involuntary_count = 0;

  ThreadTime operator-(const ThreadTime& before) const;
  ThreadTime& operator+=(const ThreadTime& other);
};

// The threads of this process, in order of their numbers.
std::vector<pid_t> ThreadsOfProcess();
// 0 for a thread that has ended.
ThreadTime TimeOf(pid_t thread);
ThreadTime TimeOf(const std::vector<pid_t>& threads);
// The threads that are there now and were not in `before`.
std::vector<pid_t> ThreadsSince(const std::vector<pid_t>& before);

uint64_t ProcessCpuNs();

// Of the running kernel; containers of one machine have the same. "": unknown
std::string MachineId();

// The time of all processors of this machine since its start.
struct HostTime {
  double busy_s = 0;   // in any process, and in the kernel
  double steal_s = 0;  // taken by the hypervisor of a virtual machine

  HostTime operator-(const HostTime& before) const;
};
HostTime TimeOfHost();

double LoadAverage();       // of the last minute; -1: unknown
std::string CpuGovernor();  // "" : unknown
unsigned CoreCount();       // that this process may run on

// Pins threads of this process to `cores`. An empty list leaves them as they are.
// Errors: kInvalidArgument  the kernel allows none of the cores, or a thread has ended
Status PinThreads(const std::vector<pid_t>& threads, const CoreList& cores);
// The cores on which any of these threads may run, as "0-5,8".
std::string CoresOf(const std::vector<pid_t>& threads);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_THREAD_CLOCKS_H_
