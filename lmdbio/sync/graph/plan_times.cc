#include "lmdbio/sync/graph/plan_times.h"

#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

void PlanTimes::OnTransfer(const TransferSample& transfer) {
  if (!trial_.empty()) log_.Add(transfer);
}

void PlanTimes::OnPlan(const TimedPlan& plan) {
  std::string text =
      plan.forecast ? fmt::format("plan {} by time: {}", plan.plan.epoch(), plan.forecast->Text())
                    : fmt::format("plan {} is by arrival: {}", plan.plan.epoch(), plan.obstacle);
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

std::string PlanTimes::Text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

}  // namespace lmdbio::sync
