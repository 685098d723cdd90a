// lmdbio/sync/graph/timed_plan.h - a plan whose order and sizes follow from times.
//
// Source: Hashemi et al. 4; docs/caramel.md.
#ifndef LMDBIO_SYNC_GRAPH_TIMED_PLAN_H_
#define LMDBIO_SYNC_GRAPH_TIMED_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/schedule/program_times.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// Measured times of an iteration. The same on every rank.
struct IterationFacts {
  std::vector<TensorTimes> times;       // [tensors]; empty: they are not known
  int64_t length_ns = 0;                // on the program clock
  int64_t spread_ns = 0;                // most iterations are longer by at most this
  std::vector<TransferSample> samples;  // of calls; empty: the order of arrival
};

// The times that are expected of a plan.
struct PlanForecast {
  int64_t iteration_ns = 0;  // of the plan
  int64_t arrival_ns = 0;    // of the plan in the order of arrival
  int64_t bound_ns = 0;      // no plan takes less
  int64_t computing_ns = 0;  // if calls took no time
  int64_t spread_ns = 0;     // most iterations are longer by at most this, because of the program
  uint64_t step_count = 0;
  bool is_by_arrival = false;  // the order of arrival is as good, and was chosen

  // In words, without a full stop.
  std::string Text() const;
};

struct TimedPlan {
  Plan plan;
  std::optional<PlanForecast> forecast = std::nullopt;  // none: the plan is not made by time
  std::optional<TransferModel> model = std::nullopt;    // of the forecast
  std::string obstacle = {};  // why not; "" if there is a forecast, or no wish for one
  bool is_split = false;      // its buckets are reduced in halves; then nothing is forecast

  // In words, without a full stop.
  std::string Text() const;
};

// Makes a plan by options.order. Without times, samples or a model, with tensor groups, and if the
// order of arrival is predicted to be as good, it is Plan::FromOrder.
//
// kSplit has the buckets of Plan::FromOrder. First all of them are reduced, in the order of
// arrival. Then those on the host are gathered, in the order in which the program needs them, or
// the other way round if times are not known. It needs no times and no model, but no tensor may
// need another one.
// tensors   as Plan::FromOrder
// Requires: as Plan::FromOrder
TimedPlan MakeTimedPlan(const std::vector<OrderedTensor>& tensors, const IterationFacts& facts,
                        const PlanOptions& options, uint64_t epoch);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_TIMED_PLAN_H_
