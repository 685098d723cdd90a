#include "lmdbio/ranks/mpi/mpi_waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLooks = 20;  // before the first sleep, giving up the core
constexpr auto kLeastSleep = std::chrono::microseconds(20);
constexpr auto kMostSleep = std::chrono::microseconds(1000);

}  // namespace

Status MpiWaiter::CheckStopped() {
  if (!is_stopped_.load()) [[likely]]
    return {};
  const std::lock_guard lock(mutex_);
  return Fail(ErrorCode::kPeerFailed, words_);
}

// The first words stay.
Status MpiWaiter::Fallen(std::string words) {
  {
    const std::lock_guard lock(mutex_);
    if (words_.empty()) words_ = std::move(words);
  }
  is_stopped_.store(true);
  return CheckStopped();
}

void MpiWaiter::Stop(const Error& why) {
  // Its own calls learn of it as those of a peer do.
  static_cast<void>(Fallen(why.message()));
  health_.GiveUp(why);
}

Status MpiWaiter::Await(MPI_Request& request) {
  std::chrono::microseconds sleep = kLeastSleep;
  for (int looks = 0;; ++looks) {
    LMDBIO_TRY_VOID(CheckStopped());
    int is_done = 0;
    LMDBIO_TRY_VOID(MpiStatus(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (is_done != 0) return {};
    const auto now = Clock::now();
    if (now >= next_health_check_) {
      next_health_check_ = now + ranks::kHealthNap;
      Status health = health_.Check();
      if (!health) return Fallen(health.error().message());
    }
    if (looks < kLooks) {
      ::sched_yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min<std::chrono::microseconds>(2 * sleep, kMostSleep);
  }
}

}  // namespace lmdbio::ranks
