#include "lmdbio/sync/engine/stall_monitor.h"

#include <algorithm>
#include <unordered_map>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {
namespace {

// Time between two wake-ups of the other ranks.
constexpr auto kWakeUpPause = std::chrono::milliseconds(200);
// A tensor that has waited for longer is overdue, even if the report time is longer.
constexpr auto kOverdueAfterMax = std::chrono::milliseconds(2000);

}  // namespace

StallMonitor::StallMonitor(const trace::StallLimits& limits, const StallMonitorParts& parts,
                           std::function<void(const std::string& line)> log)
    : overdue_after_(std::min<std::chrono::milliseconds>(limits.report / 2, kOverdueAfterMax)),
      reports_(limits.report.count() > 0),
      parts_(parts),
      log_(std::move(log)),
      last_look_(Clock::now()),
      last_wake_up_(last_look_),
      watch_(limits) {}

// If the whole job is stopped and continued, its tensors have not waited meanwhile. So a gap of
// more than kLookMax between two looks counts as a stop, and is added to the time of submission.
StallMonitor::Clock::time_point StallMonitor::WaitsSince(const Task& task) const {
  return task.since + (away_ - task.away_before);
}

Status StallMonitor::Look(Clock::time_point now) {
  const auto since_last_look = now - last_look_;
  if (since_last_look < ranks::kHealthNap) return {};
  last_look_ = now;
  if (since_last_look > ranks::kLookMax) away_ += since_last_look;
  if (parts_.tasks.tasks().empty()) return {};
  if (reports_) WakePeersIfOverdue(now);
  const std::vector<trace::PendingTensor> pending = PendingTensors();
  trace::StallFindings findings = watch_.Look(pending, now);
  if (log_) {
    for (const std::string& line : findings.lines) log_(line);
  }
  for (const size_t index : findings.reported) {
    parts_.tracer.Stalled(*parts_.tasks.tasks().at(pending[index].name));
  }
  return std::move(findings.status);
}

// In a round of its own the rank cannot learn why a tensor waits: ranks without requests join no
// round. The wake-up makes them join. The names go to the coordinator before the next round, so
// that all ranks drop the cached responses and rank 0 gets the requests themselves.
void StallMonitor::WakePeersIfOverdue(Clock::time_point now) {
  if (now - last_wake_up_ <= kWakeUpPause) return;
  std::vector<std::string> names;
  for (const auto& [name, task] : parts_.tasks.tasks()) {
    if (now - WaitsSince(*task) > overdue_after_) names.push_back(name);
  }
  if (names.empty()) return;
  last_wake_up_ = now;
  overdue_names_ = std::move(names);
  parts_.transport.Ring();
}

std::vector<trace::PendingTensor> StallMonitor::PendingTensors() const {
  std::unordered_map<std::string, std::vector<int>> missing;
  for (Stall& stall : parts_.coordinator.Stalls()) {
    missing[stall.name] = std::move(stall.missing_ranks);
  }
  std::vector<trace::PendingTensor> pending;
  for (const auto& [name, task] : parts_.tasks.tasks()) {
    const auto found = missing.find(name);
    pending.push_back({name, task->number, WaitsSince(*task),
                       found == missing.end() ? std::vector<int>() : found->second,
                       task->is_ready()});
  }
  return pending;
}

}  // namespace lmdbio::sync
