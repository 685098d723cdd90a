#include "lmdbio/base/thread_times.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace lmdbio {
namespace {

// The first version of the kernel's struct sched_attr. C libraries before glibc 2.41 lack it.
struct SchedulingOfThread {
  uint32_t size = sizeof(SchedulingOfThread);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // the slice, under a policy that shares cores
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingOfThread) == 48);

// The attributes of the calling thread; nullopt if the kernel forbids the call or the policy has no
// slices.
std::optional<SchedulingOfThread> Scheduling() {
  SchedulingOfThread mine;
  if (::syscall(SYS_sched_getattr, 0, &mine, sizeof(mine), 0) != 0) return std::nullopt;
  // Under other policies the field has another meaning, or none.
  if (mine.policy != SCHED_OTHER && mine.policy != SCHED_BATCH) return std::nullopt;
  return mine;
}

}  // namespace

std::optional<std::chrono::nanoseconds> ThreadSlice() {
  const std::optional<SchedulingOfThread> mine = Scheduling();
  if (!mine || mine->runtime_ns == 0) return std::nullopt;
  return std::chrono::nanoseconds(mine->runtime_ns);
}

void ShortenThreadSlices() {
  std::optional<SchedulingOfThread> mine = Scheduling();
  if (!mine) return;
  // Policy and priority stay as they were read; only the slice changes.
  mine->size = sizeof(SchedulingOfThread);
  mine->runtime_ns = std::chrono::nanoseconds(kShortSlice).count();
  // A refusal is ignored: the thread then has the slices of all others.
  ::syscall(SYS_sched_setattr, 0, &*mine, 0);
}

}  // namespace lmdbio
