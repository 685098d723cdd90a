// lmdbio/sync/graph/plan_times.h - what the helper thread of a rank keeps for plans by time.
//
// Source: docs/caramel.md "Transfer model".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_
#define LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_

#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/sync/graph/timed_plan.h"
#include "lmdbio/sync/schedule/transfer_log.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// Threads: one at a time, except Text.
class PlanTimes {
 public:
  // trial  the times of calls before the training; empty on ranks whose times are not used
  explicit PlanTimes(std::vector<TransferSample> trial) : trial_(std::move(trial)) {}

  // A call has reduced values. Without effect if there was no trial.
  void OnTransfer(const TransferSample& transfer);
  // For a proposal: the times of calls of the training, and those of the trial for other sizes.
  std::vector<TransferSample> Samples() const { return log_.Merge(trial_); }

  // The ranks follow this plan from now on.
  void OnPlan(const TimedPlan& plan);
  // The forecast of the last plan, as a line of text. Threads: any
  std::string Text() const;

 private:
  const std::vector<TransferSample> trial_;
  TransferLog log_;
  mutable std::mutex mutex_;
  std::string text_ = "plans by time: none yet";
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_
