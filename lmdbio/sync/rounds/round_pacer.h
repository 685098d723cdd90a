// lmdbio/sync/rounds/round_pacer.h - runs one round, and waits in it as the pacing demands.
//
// Source: dissertation 6.2.2, figure 6.5 (a cycle), 6.3.1 (GS), 6.3.2 (NBCS), 8.3.2; docs/sync.md
// "Pacing and waiting".
#ifndef LMDBIO_SYNC_ROUNDS_ROUND_PACER_H_
#define LMDBIO_SYNC_ROUNDS_ROUND_PACER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/rounds/round_clock.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// As in SyncOptions.
struct PacingOptions {
  std::string pacing = "event";                // "cycle", "gs", "nbcs", "event"
  std::chrono::microseconds cycle_time{1000};  // of "cycle", "gs", "nbcs"; >= 0
  uint32_t gs_cycles = 1;                      // of "gs": cycles between two agreements; > 0
};

struct RoundCounters {
  uint64_t exchange_count = 0;
  uint64_t exchange_bytes = 0;  // sent by this rank
};

// Threads: one at a time.
class RoundPacer {
 public:
  // transport, coordinator, clock  must outlive this
  // on_nap  called about every 100 ms while a round waits for other ranks; its error ends the round
  RoundPacer(Transport& transport, Coordinator& coordinator, const PacingOptions& options,
             std::function<Status()> on_nap, RoundClock& clock = SteadyRoundClock());

  // Whether a round begins every cycle time, even if no rank has a request.
  bool is_cyclic() const { return is_cyclic_; }

  // Sleeps until the cycle time since the last call has passed. Requires is_cyclic. Collective with
  // "gs".
  // Errors: as Transport
  Status SleepToNextCycle();

  // Collective. Runs one round of the coordinator.
  // Errors: as Transport and Coordinator; as on_nap
  Status Run();

  const RoundCounters& counters() const { return counters_; }

 private:
  Result<Reply> Make(Exchange exchange);
  Status TestAndSleep();
  Result<std::chrono::microseconds> LeastOfAll(std::chrono::microseconds mine);

  Transport& transport_;
  Coordinator& coordinator_;
  RoundClock& clock_;
  std::function<Status()> on_nap_;
  std::chrono::microseconds cycle_time_;
  uint32_t gs_cycles_;
  bool is_cyclic_;
  bool is_gs_;
  bool tests_and_sleeps_;
  RoundClock::TimePoint cycle_began_;
  uint64_t cycle_count_ = 0;
  RoundCounters counters_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ROUNDS_ROUND_PACER_H_
