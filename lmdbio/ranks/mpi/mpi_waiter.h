// lmdbio/ranks/mpi/mpi_waiter.h - waiting for MPI asleep: test, sleep, test again.
//
// MPI goes on with its messages only while it is called. So the sleeps are short, and grow.
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

// Threads: one at a time, but Stop from any.
class MpiWaiter {
 public:
  // Lifetime: `health` outlives the waiter
  explicit MpiWaiter(ranks::Health& health) : health_(health) {}

  // Until the request is done; it is null then.
  // Errors: kPeerFailed  a rank is gone, silent for too long, or has stopped; the request goes on
  //         kInternal    MPI failed, in its words
  Status Await(MPI_Request& request);

  // Errors: kPeerFailed  Stop was called, or a wait has failed; says why
  Status CheckStopped();

  // Ends the wait under way and all to come, and tells the other ranks (ranks::Health::GiveUp).
  void Stop(const Error& why);

 private:
  Status Fallen(std::string words);

  ranks::Health& health_;
  std::chrono::steady_clock::time_point next_health_check_{};
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::string words_;  // why it is stopped
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_WAITER_H_
