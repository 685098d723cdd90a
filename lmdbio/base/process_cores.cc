// The cores of this process, and the pinning of its threads.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "lmdbio/base/placement.h"

namespace lmdbio {
namespace {

constexpr int kSetCoresMax = (1 << 20) - 1;  // above the limit of every kernel

// A cpu_set_t for any number of cores. The type itself ends at 1,024 cores.
class CoreSet {
 public:
  explicit CoreSet(int core_count)
      : bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(core_count))),
        set_(CPU_ALLOC(static_cast<size_t>(core_count))) {
    CPU_ZERO_S(bytes_, set_.get());
  }

  bool Has(int core) const { return CPU_ISSET_S(static_cast<size_t>(core), bytes_, set_.get()); }
  void Add(int core) { CPU_SET_S(static_cast<size_t>(core), bytes_, set_.get()); }
  bool ReadFromThisThread() { return ::sched_getaffinity(0, bytes_, set_.get()) == 0; }
  bool PinThisThread() const { return ::sched_setaffinity(0, bytes_, set_.get()) == 0; }

 private:
  struct FreeCores {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  size_t bytes_;
  std::unique_ptr<cpu_set_t, FreeCores> set_;
};

// The kernel refuses a set that is smaller than its own. So this tries sets of growing size.
HostCores ReadProcessCores() {
  HostCores cores;
  for (int size = 1024; size <= kSetCoresMax + 1; size *= 4) {
    CoreSet set(size);
    if (!set.ReadFromThisThread()) {
      if (errno == EINVAL) continue;  // the set of the kernel is larger
      break;
    }
    for (int core = 0; core < size; ++core) {
      if (set.Has(core)) cores.allowed.push_back(core);
    }
    break;
  }
  // Core numbers may have gaps, so the count covers the largest number.
  cores.count = static_cast<int>(::sysconf(_SC_NPROCESSORS_CONF));
  if (!cores.allowed.empty()) cores.count = std::max(cores.count, cores.allowed.back() + 1);
  return cores;
}

}  // namespace

Result<HostCores> ProcessCores() {
  // Read once: a thread that was pinned since then would see its own cores only.
  static const HostCores kCores = ReadProcessCores();
  if (kCores.allowed.empty()) {
    return Fail(ErrorCode::kInternal,
                "the kernel does not report which cores this process may use");
  }
  return kCores;
}

Result<HostCores> ProcessTopology() {
  // Read once, because hwloc reads hundreds of files.
  static const Result<std::vector<HardwareThread>> kTopology = ReadTopology();
  LMDBIO_TRY(HostCores cores, ProcessCores());
  if (kTopology) {
    cores.topology = *kTopology;
  } else {
    cores.why_no_topology = kTopology.error().message();
  }
  return cores;
}

Status PinThisThread(std::span<const int> cores) {
  if (cores.empty()) return {};
  LMDBIO_TRY_VOID(ProcessCores());  // keeps the answer from before the first pinning
  int most = 0;                     // the largest core number, which determines the size of the set
  for (const int core : cores) {
    if (core < 0 || core > kSetCoresMax) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a core number", core));
    }
    most = std::max(most, core);
  }
  CoreSet set(most + 1);
  for (const int core : cores) set.Add(core);
  if (set.PinThisThread()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("cannot run on cores {}: {}", CoresText(cores),
                          std::error_code(errno, std::generic_category()).message()),
              errno);
}

}  // namespace lmdbio
