// lmdbio/sync/engine/stall_monitor.h - finds tensors that some rank does not submit.
//
// A tensor that has waited for half of `stall_report` (at most 2 s) is overdue. The monitor then
// sends wake-ups to the other ranks, so that they join a round, and rank 0 learns which ranks lack
// the tensor. After `stall_report` the tensor is reported in the log, after `stall_limit` the job
// fails.
//
// Source: docs/sync.md "Failures".
#ifndef LMDBIO_SYNC_ENGINE_STALL_MONITOR_H_
#define LMDBIO_SYNC_ENGINE_STALL_MONITOR_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/task_table.h"
#include "lmdbio/sync/transport/transport.h"
#include "lmdbio/trace/stall_report.h"

namespace lmdbio::sync {

// Threads: the helper thread.
class StallMonitor {
 public:
  using Clock = std::chrono::steady_clock;
  // All of them must outlive the monitor.
  struct StallMonitorParts {
    const TaskTable& tasks;
    const Coordinator& coordinator;
    Transport& transport;
    SyncTracer& tracer;
  };

  // log  receives the lines of reports; may be empty
  StallMonitor(const trace::StallLimits& limits, const StallMonitorParts& parts,
               std::function<void(const std::string& line)> log);

  // The task begins to wait now.
  void OnSubmitted(Task& task) const { task.away_before = away_; }

  // Looks at all tasks in progress. Called at least each RoundDriver::kIdleTick, also while a round
  // or a collective waits; without effect within 100 ms of the last look.
  // Errors: kPeerFailed  a tensor has waited for the limit; names it, and the ranks if known
  Status Look(Clock::time_point now);

  // The tensors that were overdue at the last wake-up, once.
  std::vector<std::string> TakeOverdueNames() { return std::exchange(overdue_names_, {}); }

 private:
  Clock::time_point WaitsSince(const Task& task) const;
  void WakePeersIfOverdue(Clock::time_point now);
  std::vector<trace::PendingTensor> PendingTensors() const;

  std::chrono::milliseconds overdue_after_;
  bool reports_;  // whether stalls are reported at all
  StallMonitorParts parts_;
  std::function<void(const std::string& line)> log_;
  Clock::time_point last_look_;
  Clock::time_point last_wake_up_;
  Clock::duration away_{0};  // the time in which this thread was stopped and could not look
  trace::StallWatch watch_;
  std::vector<std::string> overdue_names_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_STALL_MONITOR_H_
