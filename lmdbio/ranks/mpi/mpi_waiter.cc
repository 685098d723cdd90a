#include "lmdbio/ranks/mpi/mpi_waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLeastSleep = std::chrono::microseconds(20);
constexpr auto kMostSleep = std::chrono::microseconds(100);

}  // namespace

Status MpiWaiter::CheckStopped() {
  if (!is_stopped_.load()) [[likely]]
    return {};
  const std::lock_guard lock(mutex_);
  return Fail(ErrorCode::kPeerFailed, reason_);
}

// The first reason stays.
Status MpiWaiter::StopWith(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = std::move(reason);
  }
  is_stopped_.store(true);
  return CheckStopped();
}

void MpiWaiter::Stop(const Error& why) {
  // Calls on this rank fail in the same way as those on its peers.
  static_cast<void>(StopWith(why.message()));
  health_.GiveUp(why);
}

// MPI_Test also makes MPI progress. If the health check fails, the request stays active, and MPI
// may still write to its memory (base/kept_memory.h).
Result<bool> MpiWaiter::IsDone(MPI_Request& request) {
  LMDBIO_TRY_VOID(CheckStopped());
  int is_done = 0;
  LMDBIO_TRY_VOID(MpiStatus(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test"));
  if (is_done != 0) return true;
  const auto now = Clock::now();
  // The check is rare, because it costs more than a test.
  if (now >= next_health_check_) {
    next_health_check_ = now + ranks::kHealthNap;
    Status health = health_.Check();
    if (!health) LMDBIO_TRY_VOID(StopWith(health.error().message()));
  }
  return false;
}

// The sleeps between tests delay other messages too.
Status MpiWaiter::Await(MPI_Request& request, std::chrono::microseconds yield_time) {
  std::chrono::microseconds sleep = kLeastSleep;
  const auto yields_until = Clock::now() + yield_time;
  while (true) {
    LMDBIO_TRY(const bool is_done, IsDone(request));
    if (is_done) return {};
    if (Clock::now() < yields_until) {
      ::sched_yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min<std::chrono::microseconds>(2 * sleep, kMostSleep);
  }
}

}  // namespace lmdbio::ranks
