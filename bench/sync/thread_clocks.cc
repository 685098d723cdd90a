#include "bench/sync/thread_clocks.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio::bench {
namespace {

// 0 for the clock of a thread that has ended.
uint64_t ReadClock(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// The processor clock of a thread of this process, by its number; pthread_getcpuclockid returns the
// same for a pthread_t. The tick counts of /proc are too coarse: a thread runs for microseconds, a
// tick has 10 ms.
clockid_t ClockOf(pid_t thread) {
  constexpr unsigned kThreadScheduledClock = 6;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | kThreadScheduledClock);
}

// 0 for a thread that has ended.
uint64_t InvoluntarySwitches(pid_t thread) {
  constexpr std::string_view kName = "nonvoluntary_ctxt_switches:";
  std::ifstream file(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kName)) return std::strtoull(line.c_str() + kName.size(), nullptr, 10);
  }
  return 0;
}

// A set of core numbers as the kernel takes it, with room for as many cores as any kernel has.
class KernelCores {
 public:
  void Add(int core) { CPU_SET_S(static_cast<size_t>(core), bytes(), get()); }
  void AddAll(const KernelCores& other) { CPU_OR_S(bytes(), get(), get(), other.get()); }
  CoreList cores() const {
    CoreList cores;
    for (int core = 0; core < kCoreCount; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes(), get())) cores.push_back(core);
    }
    return cores;
  }

  static size_t bytes() { return sizeof(words_); }
  cpu_set_t* get() { return words_.data(); }
  const cpu_set_t* get() const { return words_.data(); }

 private:
  static constexpr int kCoreCount = 1 << 16;
  std::array<cpu_set_t, kCoreCount / CPU_SETSIZE> words_{};
};

}  // namespace

ThreadTime ThreadTime::operator-(const ThreadTime& before) const {
  return {cpu_ns - before.cpu_ns, run_delay_ns - before.run_delay_ns,
          start_count - before.start_count, involuntary_count - before.involuntary_count};
}

ThreadTime& ThreadTime::operator+=(const ThreadTime& other) {
  cpu_ns += other.cpu_ns;
  run_delay_ns += other.run_delay_ns;
  start_count += other.start_count;
  involuntary_count += other.involuntary_count;
  return *this;
}

// Sorted, because ThreadsSince needs sorted lists.
std::vector<pid_t> ThreadsOfProcess() {
  std::vector<pid_t> threads;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = ::readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    if (number > 0) threads.push_back(number);
  }
  ::closedir(folder);
  std::sort(threads.begin(), threads.end());
  return threads;
}

ThreadTime TimeOf(pid_t thread) {
  ThreadTime time;
  time.cpu_ns = ReadClock(ClockOf(thread));
  // The second number of schedstat is the run delay in nanoseconds, the third the count of starts.
  // The clock above gives the processor time, so the first number is not used.
  std::ifstream file(fmt::format("/proc/self/task/{}/schedstat", thread));
  uint64_t cpu_ns = 0;
  file >> cpu_ns >> time.run_delay_ns >> time.start_count;
  time.involuntary_count = InvoluntarySwitches(thread);
  return time;
}

ThreadTime TimeOf(const std::vector<pid_t>& threads) {
  ThreadTime sum;
  for (const pid_t thread : threads) sum += TimeOf(thread);
  return sum;
}

// The threads of the program live on, so a number that is new belongs to a thread that was made
// since.
std::vector<pid_t> ThreadsSince(const std::vector<pid_t>& before) {
  const std::vector<pid_t> now = ThreadsOfProcess();
  std::vector<pid_t> added;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::back_inserter(added));
  return added;
}

uint64_t ProcessCpuNs() { return ReadClock(CLOCK_PROCESS_CPUTIME_ID); }

HostTime HostTime::operator-(const HostTime& before) const {
  return {busy_s - before.busy_s, steal_s - before.steal_s};
}

std::string MachineId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

// Waiting for storage counts as idle, because the core could serve others meanwhile. Stolen time is
// that of other virtual machines; it disturbs a run like a neighbour, and is kept apart.
HostTime TimeOfHost() {
  std::ifstream file("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0, steal = 0;
  file >> word >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq >> steal;
  const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {(user + nice + system + irq + soft_irq) / ticks_per_s, steal / ticks_per_s};
}

double LoadAverage() {
  std::ifstream file("/proc/loadavg");
  double load = -1;
  file >> load;
  return file ? load : -1;
}

std::string CpuGovernor() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::string word;
  file >> word;
  return word;
}

Status PinThreads(const std::vector<pid_t>& threads, const CoreList& cores) {
  if (cores.empty()) return {};
  KernelCores set;
  for (const int core : cores) set.Add(core);
  for (const pid_t thread : threads) {
    if (::sched_setaffinity(thread, set.bytes(), set.get()) == 0) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot pin thread {} to cores {}: {}", thread, CoresText(cores),
                            std::error_code(errno, std::generic_category()).message()),
                errno);
  }
  return {};
}

std::string CoresOf(const std::vector<pid_t>& threads) {
  KernelCores all;
  for (const pid_t thread : threads) {
    KernelCores set;
    if (::sched_getaffinity(thread, set.bytes(), set.get()) == 0) all.AddAll(set);
  }
  return CoresText(all.cores());
}

// The cores that this process may use, which a launcher or container may have limited.
unsigned CoreCount() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&cores));
}

}  // namespace lmdbio::bench
