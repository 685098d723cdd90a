// lmdbio/sync/rounds/round_driver.h - decides when this rank begins a round, and runs it.
//
// With a cyclic pacing a round begins every cycle time. With "event" a round is due if
// - this rank has a request without a response,
// - another rank of the host has sent a wake-up, or
// - nothing has happened for a second, and ranks of other hosts cannot send wake-ups to this one.
//
// Source: dissertation 6.2.2, 6.3.1, 6.3.2; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_ROUNDS_ROUND_DRIVER_H_
#define LMDBIO_SYNC_ROUNDS_ROUND_DRIVER_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/request/request.h"
#include "lmdbio/sync/rounds/group_driver.h"
#include "lmdbio/sync/rounds/round_pacer.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// How the helper thread sleeps while it has nothing to do.
struct IdleWait {
  std::chrono::microseconds limit;  // this and the next: as Transport::Sleep
  WakeOn wake_on = WakeOn::kWakeOrRing;
  size_t submission_count = 1;  // fewer submissions do not wake the thread
};

// Threads: one at a time.
class RoundDriver {
 public:
  using Clock = std::chrono::steady_clock;
  // An idle thread gives a sign of life this often.
  static constexpr auto kIdleTick = std::chrono::milliseconds(250);
  // A rank without wake-ups from its peers joins a round after this idle time.
  static constexpr auto kIdleRoundPause = std::chrono::seconds(1);

  // transport, coordinator, on_nap  as RoundPacer
  // patience                        as GroupDriver
  RoundDriver(Transport& transport, Coordinator& coordinator, const PacingOptions& options,
              std::function<Status()> on_nap, GroupPatience patience = {});

  // Requests go to the coordinator through this.
  GroupDriver& groups() { return groups_; }

  bool is_cyclic() const { return pacer_.is_cyclic(); }

  // With a cyclic pacing: sleeps until the next round is due. With "event": returns at once.
  // Errors: as Transport
  Status AwaitCycle();

  // Whether a round is due. Consumes the wake-up that another rank has sent, and releases groups
  // that are out of patience.
  bool TakeDue(Clock::time_point now);

  // Collective. Runs one round and returns its responses, in the order in which all ranks execute
  // them.
  // stalled  tensors that the coordinator marks as stalled before the round
  // Errors: as RoundPacer::Run
  Result<std::vector<Response>> Run(const std::vector<std::string>& stalled);

  // How to sleep while no round is due, or after a round that led to nothing.
  IdleWait idle_wait() const;

  // The program or a plan has made progress, so the idle time begins anew.
  void NoteProgress(Clock::time_point now) { last_progress_ = now; }
  // The next TakeDue returns true: a wake-up was taken elsewhere and is still unanswered.
  void DemandRound() { is_demanded_ = true; }

  const RoundCounters& counters() const { return pacer_.counters(); }

 private:
  Transport& transport_;
  Coordinator& coordinator_;
  RoundPacer pacer_;
  GroupDriver groups_;
  bool is_demanded_ = false;
  Clock::time_point last_progress_;  // of rounds, too
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ROUNDS_ROUND_DRIVER_H_
