// lmdbio/sync/graph/plan_times.h - what the helper thread of a rank keeps for plans by time.
//
// Source: docs/caramel.md "Transfer model", "A plan that is wrong".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_
#define LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/sync/graph/timed_plan.h"
#include "lmdbio/sync/schedule/forecast_watch.h"
#include "lmdbio/sync/schedule/transfer_log.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// Calls before a plan make its model, and those of a plan are compared with it. After a plan whose
// forecast was wrong, the next one must be wrong for twice as many iterations. So ranks do not
// learn for ever in a network that no model fits.
//
// A plan has gained nothing if its iterations were longer than predicted from its begin, and no
// shorter than those of the order of arrival were predicted. After two such plans in a row, the
// next one is by arrival. It is not watched, and declined after some time, to try again.
//
// Threads: one at a time, except Text and WrongText.
class PlanTimes {
 public:
  // The number of wrong iterations doubles so often.
  static constexpr uint32_t kDoublingsMax = 8;
  // Plans in a row that gain nothing.
  static constexpr uint32_t kVainPlansMax = 2;
  // Iterations in the order of arrival after these.
  static constexpr uint64_t kArrivalIterations = 1000;

  // trial  the times of calls before the training; empty on ranks whose times are not used
  explicit PlanTimes(std::vector<TransferSample> trial) : trial_(std::move(trial)) {}

  // A call has reduced values. Without effect if there was no trial.
  // end_ns  of a steady clock
  void OnTransfer(const TransferSample& transfer, int64_t end_ns, TransferStart start);
  // For a proposal: the times of calls of the training, and those of the trial for other sizes.
  // After a plan in a slower or faster network the trial is old. Then its times are multiplied by
  // what calls of the training take against it. Empty if the plan is to be by arrival, because
  // plans have gained nothing.
  std::vector<TransferSample> Samples() const;

  // The ranks follow this plan from now on.
  void OnPlan(const TimedPlan& plan);
  // All steps of an iteration of the plan were made.
  // now_ns  of a steady clock
  // Returns: whether this rank declines the plan: its forecast is wrong, or a plan by time is to be
  //   tried again
  bool OnIterationEnd(int64_t now_ns);
  // All ranks have abandoned the plan.
  // Returns: whether this rank has found its forecast wrong; WrongText tells why
  bool OnAbandoned();

  // The forecast of the last plan, as a line of text. Threads: any
  std::string Text() const;
  // The fault of the last forecast that was wrong, as a line of text; "" if none was.
  // Threads: any
  std::string WrongText() const;

 private:
  bool wants_arrival() const { return vain_count_ >= kVainPlansMax; }
  bool HasGainedNothing(const WrongForecast& wrong) const;
  void NoteWrong(const WrongForecast& wrong);

  const std::vector<TransferSample> trial_;
  TransferLog log_;
  std::optional<int64_t> last_end_ns_;  // of a call; none: it was the trial
  bool is_trial_old_ = false;           // the network was slower or faster than in a plan
  uint64_t epoch_ = 0;                  // of the last plan
  bool is_following_ = false;
  int64_t arrival_ns_ = 0;              // forecast of the order of arrival, if a plan is watched
  std::optional<ForecastWatch> watch_;  // none: nothing is predicted
  uint32_t wrong_count_ = 0;            // plans whose forecast was wrong
  uint32_t vain_count_ = 0;             // of these the last ones, which gained nothing
  uint64_t arrival_count_ = 0;          // iterations in the order of arrival because of that
  mutable std::mutex mutex_;
  std::string text_ = "plans by time: none yet";
  std::string wrong_text_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_TIMES_H_
