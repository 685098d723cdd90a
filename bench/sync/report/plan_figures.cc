#include "bench/sync/report/plan_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "bench/sync/report/iteration_figures.h"

namespace lmdbio::bench {
namespace {

// The number of milliseconds behind `words`; none: the line does not have them.
std::optional<double> MillisecondsBehind(const std::string& line, std::string_view words) {
  const size_t place = line.find(words);
  if (place == std::string::npos) return std::nullopt;
  const char* const begin = line.c_str() + place + words.size();
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  if (end == begin || std::string_view(end).substr(0, 3) != " ms") return std::nullopt;
  return number;
}

double ErrorOf(const TransferFigure& figure) {
  return static_cast<double>(figure.predicted_ns) / static_cast<double>(figure.measured_ns) - 1;
}

}  // namespace

// A line of a plan is: "plan 1 by time: an iteration of 9.51 ms is predicted, 12.40 ms by arrival,
// at least 9.02 ms; 31 steps, by arrival".
std::optional<PlanPrediction> PredictionOf(std::span<const std::string> description) {
  for (const std::string& line : description) {
    const auto iteration_ms = MillisecondsBehind(line, " by time: an iteration of ");
    const auto bound_ms = MillisecondsBehind(line, ", at least ");
    if (!iteration_ms || !bound_ms) continue;
    return PlanPrediction{*iteration_ms, *bound_ms, line.ends_with(", by arrival")};
  }
  return std::nullopt;
}

// All calls of a plan count. Those that a model is made of count as in the library.
void TransferRecord::Add(const sync::TransferSample& call, int64_t rest_ns) {
  const std::lock_guard lock(mutex_);
  if (has_plan_) {
    planned_.Add(call, 0);
  } else {
    open_.push_back({call, rest_ns});
  }
}

void TransferRecord::EndIteration(bool has_plan) {
  const std::lock_guard lock(mutex_);
  has_plan_ = has_plan_ || has_plan;
  if (!has_plan_) {
    for (const RestedCall& one : open_) tried_.Add(one.call, one.rest_ns);
  }
  open_.clear();
}

bool TransferRecord::has_plan() const {
  const std::lock_guard lock(mutex_);
  return has_plan_;
}

std::vector<TransferFigure> TransferRecord::UntriedSizes() const {
  const std::lock_guard lock(mutex_);
  std::vector<TransferFigure> figures;
  const std::vector<sync::TransferSample> tried = tried_.Merge({});
  const Result<sync::TransferModel> model = sync::TransferModel::FromSamples(tried);
  if (!model) return figures;
  for (const sync::TransferSample& call : planned_.Merge({})) {
    if (std::ranges::find(tried, call.bytes, &sync::TransferSample::bytes) != tried.end()) continue;
    figures.push_back({call.bytes, model->TimeOf(call.bytes), call.ns});
  }
  return figures;
}

std::optional<PredictionSummary> SummarisePredictions(std::span<const PredictedRun> runs) {
  std::vector<double> predicted;
  std::vector<double> errors;
  std::vector<double> ratios;
  std::vector<double> transfer_errors;
  for (const PredictedRun& run : runs) {
    predicted.push_back(run.prediction.iteration_ms);
    errors.push_back(run.prediction.iteration_ms / run.p50_ms - 1);
    ratios.push_back(run.p50_ms / run.prediction.bound_ms);
    for (const TransferFigure& figure : run.untried_sizes) {
      transfer_errors.push_back(std::abs(ErrorOf(figure)));
    }
  }
  if (errors.empty()) return std::nullopt;
  PredictionSummary summary;
  summary.predicted_ms = QuantileOf(predicted, 0.5);
  summary.error = QuantileOf(errors, 0.5);
  summary.error_furthest =
      std::ranges::max(errors, {}, [](double error) { return std::abs(error); });
  summary.least_ratio = QuantileOf(ratios, 0.5);
  if (!transfer_errors.empty()) {
    summary.transfer_error = QuantileOf(transfer_errors, 0.5);
    summary.transfer_error_max = std::ranges::max(transfer_errors);
  }
  return summary;
}

}  // namespace lmdbio::bench
