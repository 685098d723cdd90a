// lmdbio/sync/engine/round_pacer.h - when a rank begins a round, and how it waits in it.
//
// Source: dissertation 6.2.2, figure 6.5 (a cycle), 6.3.1 (GS), 6.3.2 (NBCS), 8.3.2; docs/sync.md
// "Pacing and waiting".
#ifndef LMDBIO_SYNC_ENGINE_ROUND_PACER_H_
#define LMDBIO_SYNC_ENGINE_ROUND_PACER_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

struct RoundCounters {
  uint64_t exchange_count = 0;
  uint64_t exchange_bytes = 0;  // that this rank brought
};

// Threads: one at a time.
class RoundPacer {
 public:
  // on_nap  called about every 100 ms while a round waits for other ranks; its error ends the round
  // The references must outlive this.
  RoundPacer(Transport& transport, sync::Coordinator& coordinator, const SyncOptions& options,
             std::function<Status()> on_nap);

  // Whether rounds begin by themselves, one each cycle time, whatever there is to do.
  bool is_cyclic() const { return is_cyclic_; }

  // "cycle", "gs", "nbcs": sleeps for what is left of the cycle time. Collective with "gs".
  // Errors: as Transport
  Status SleepToNextCycle();

  // Collective. One round of the coordinator.
  // Errors: as Transport and Coordinator; as on_nap
  Status Run();

  const RoundCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;
  Result<sync::Reply> Make(sync::Exchange exchange);
  Status TestAndSleep();
  Result<std::chrono::microseconds> LeastOfAll(std::chrono::microseconds mine);

  Transport& transport_;
  sync::Coordinator& coordinator_;
  std::function<Status()> on_nap_;
  std::chrono::microseconds cycle_time_;
  uint32_t gs_cycles_;
  bool is_cyclic_;
  bool is_gs_;
  bool tests_and_sleeps_;
  Clock::time_point cycle_began_;
  uint64_t cycle_count_ = 0;
  RoundCounters counters_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_ROUND_PACER_H_
