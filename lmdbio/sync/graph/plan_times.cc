#include "lmdbio/sync/graph/plan_times.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

void PlanTimes::OnTransfer(const TransferSample& transfer, int64_t end_ns, TransferStart start) {
  if (trial_.empty()) return;
  const int64_t begin_ns = end_ns - transfer.ns;
  const int64_t rest_ns = begin_ns - last_end_ns_.value_or(begin_ns);
  last_end_ns_ = end_ns;
  if (!is_following_) log_.Add(transfer, rest_ns);
  if (watch_) watch_->OnCall(transfer, start);
}

std::vector<TransferSample> PlanTimes::Samples() const {
  if (wants_arrival()) return {};
  return log_.Merge(is_trial_old_ ? log_.Correct(trial_) : trial_);
}

void PlanTimes::OnPlan(const TimedPlan& plan) {
  epoch_ = plan.plan.epoch();
  is_following_ = true;
  if (!trial_.empty() && plan.forecast && plan.model) {
    const ExpectedIteration expected{.length_ns = plan.forecast->iteration_ns,
                                     .computing_ns = plan.forecast->computing_ns,
                                     .spread_ns = plan.forecast->spread_ns};
    const uint32_t doublings = std::min(wrong_count_, kDoublingsMax);
    watch_.emplace(*plan.model, expected, ForecastWatch::kWrongInRow << doublings);
    arrival_ns_ = plan.forecast->arrival_ns;
  }
  const std::string words =
      wants_arrival() ? "is by arrival: plans by time have gained nothing" : plan.Text();
  std::string text = fmt::format("plan {} {}", epoch_, words);
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

bool PlanTimes::OnIterationEnd(int64_t now_ns) {
  if (wants_arrival()) return ++arrival_count_ >= kArrivalIterations;
  if (!watch_) return false;
  watch_->OnIterationEnd(now_ns);
  return watch_->wrong().has_value();
}

// The calls of the plan are not logged, and those before it may be of another network.
bool PlanTimes::OnAbandoned() {
  const std::optional<ForecastWatch> watch = std::exchange(watch_, std::nullopt);
  is_following_ = false;
  log_.Clear();
  const bool is_wrong = watch && watch->wrong();
  if (is_wrong) NoteWrong(*watch->wrong());
  if (arrival_count_ >= kArrivalIterations) {
    vain_count_ = 0;
    wrong_count_ = 0;
    arrival_count_ = 0;
  }
  const std::lock_guard lock(mutex_);
  text_ = fmt::format("plan {} was abandoned, and another one is learned", epoch_);
  if (is_wrong) {
    wrong_text_ =
        fmt::format("the forecast of plan {} was wrong: {}", epoch_, watch->wrong()->Text());
  }
  return is_wrong;
}

void PlanTimes::NoteWrong(const WrongForecast& wrong) {
  using ForecastFault = WrongForecast::ForecastFault;
  ++wrong_count_;
  is_trial_old_ = is_trial_old_ || wrong.fault == ForecastFault::kSlowerNetwork ||
                  wrong.fault == ForecastFault::kFasterNetwork;
  vain_count_ = HasGainedNothing(wrong) ? vain_count_ + 1 : 0;
}

bool PlanTimes::HasGainedNothing(const WrongForecast& wrong) const {
  return wrong.is_from_begin && wrong.mean_length_ns >= arrival_ns_;
}

std::string PlanTimes::Text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::string PlanTimes::WrongText() const {
  const std::lock_guard lock(mutex_);
  return wrong_text_;
}

}  // namespace lmdbio::sync
