// lmdbio/ranks/mpi/mpi_waiter.h - waits for an MPI request: test, sleep, test again.
//
// MPI progresses with its messages only while it is called. So the sleeps are short at first, and
// grow to 1 ms.
//
// Source: docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_RANKS_MPI_MPI_WAITER_H_
#define LMDBIO_RANKS_MPI_MPI_WAITER_H_

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/health/health.h"

namespace lmdbio::ranks {

// Threads: one at a time; Stop from any.
class MpiWaiter {
 public:
  // Lifetime: `health` outlives the waiter
  explicit MpiWaiter(Health& health) : health_(health) {}

  // Waits until the request is done and MPI has set it to null. After kPeerFailed the request is
  // still active.
  // Errors: kPeerFailed  a rank has ended, is silent for too long, or has stopped
  //         kInternal    MPI failed, with its message
  Status Await(MPI_Request& request);

  // Errors: kPeerFailed  Stop was called, or a wait has failed; names the reason
  Status CheckStopped();

  // Ends the current wait and all later ones, and reports `why` to the other ranks
  // (ranks::Health::GiveUp).
  void Stop(const Error& why);

 private:
  Status StopWith(std::string reason);

  Health& health_;
  std::chrono::steady_clock::time_point next_health_check_{};
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::string reason_;  // of the stop
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_WAITER_H_
