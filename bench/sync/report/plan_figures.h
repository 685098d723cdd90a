// bench/sync/report/plan_figures.h - the times that plans predict, beside measured ones.
//
// Source: Hashemi et al. 4.1, 4.2; docs/caramel.md "Prediction".
#ifndef LMDBIO_BENCH_SYNC_REPORT_PLAN_FIGURES_H_
#define LMDBIO_BENCH_SYNC_REPORT_PLAN_FIGURES_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/sync/schedule/transfer_log.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::bench {

// The forecast of a plan, as the description of a Synchronizer tells it.
struct PlanPrediction {
  double iteration_ms = 0;
  double bound_ms = 0;         // no order takes less
  bool is_by_arrival = false;  // the plan is that of the order of arrival
};

// None: the ranks follow no plan by time.
// description  [lines]
std::optional<PlanPrediction> PredictionOf(std::span<const std::string> description);

// Calls of one size.
struct TransferFigure {
  uint64_t bytes = 0;
  int64_t predicted_ns = 0;
  int64_t measured_ns = 0;  // the median
};

// The calls of a rank that move gradients. Those before the plan are what its model is made of:
// those of the trial, and those of the rounds.
// Threads: any
class TransferRecord {
 public:
  // rest_ns  without a call, before this one
  void Add(const sync::TransferSample& call, int64_t rest_ns);
  // has_plan  whether the ranks follow a plan now. Once true, it stays true. The iteration in which
  //           it becomes true has calls of both kinds, so none of them count
  void EndIteration(bool has_plan);
  bool has_plan() const;

  // The sizes of the calls of the plan that no earlier call had, by size. Empty if no model can be
  // made.
  std::vector<TransferFigure> UntriedSizes() const;

 private:
  mutable std::mutex mutex_;
  struct RestedCall {
    sync::TransferSample call;
    int64_t rest_ns = 0;
  };
  std::vector<RestedCall> open_;  // of the present iteration, before the plan
  sync::TransferLog tried_;
  sync::TransferLog planned_;
  bool has_plan_ = false;
};

// A run that followed a plan by time.
struct PredictedRun {
  PlanPrediction prediction;
  double p50_ms = 0;  // measured
  std::vector<TransferFigure> untried_sizes;
};

// The times that plans by time predict. An error is predicted / measured - 1.
struct PredictionSummary {
  double predicted_ms = 0;  // the iteration; the median of the runs
  double error = 0;         // of the iteration: the median of the runs, and the furthest from 0
  double error_furthest = 0;
  double least_ratio =
      0;  // p50 of a run / the bound that no order can beat; the median of the runs
  // Of calls of sizes that no call had before the plan, without signs: the median of all sizes of
  // all runs, and the greatest. None: no such size
  std::optional<double> transfer_error;
  std::optional<double> transfer_error_max;
};

// None without runs.
std::optional<PredictionSummary> SummarisePredictions(std::span<const PredictedRun> runs);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_REPORT_PLAN_FIGURES_H_
