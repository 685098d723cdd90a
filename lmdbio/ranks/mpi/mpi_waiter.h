// lmdbio/ranks/mpi/mpi_waiter.h - waits for an MPI request without blocking in MPI.
//
// MPI progresses with its messages only while it is called. While data can be expected to move, the
// wait therefore tests and yields the core, without a sleep. With a sleep between two tests, each
// of the hundreds of steps of a large collective would last as long as the sleep. If a peer is
// late, or the network slow, the wait sleeps between its tests, so that the core is free for
// computing threads.
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

  // For a message of a peer. Peers that move data are seldom apart by more.
  static constexpr auto kMessageYield = std::chrono::microseconds(200);

  // Waits until the request is done and MPI has set it to null. After kPeerFailed the request is
  // still active.
  // yield_time  the time in which data can be expected to move. In it the wait yields between two
  //             tests; after it, it sleeps
  // Errors: kPeerFailed  a rank has ended, is silent for too long, or has stopped
  //         kInternal    MPI failed, with its message
  Status Await(MPI_Request& request, std::chrono::microseconds yield_time);

  // Whether the request is done. Does not wait.
  // Errors: as Await
  Result<bool> IsDone(MPI_Request& request);

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
