#include "lmdbio/sync/graph/timed_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/sync/request/fusion.h"
#include "lmdbio/sync/schedule/predict.h"
#include "lmdbio/sync/schedule/transfer_order.h"
#include "lmdbio/sync/schedule/transfer_units.h"

namespace lmdbio::sync {
namespace {

bool MayShare(const Request& tensor) { return tensor.operation == Operation::kAllReduce; }

// Tensors that may not share a bucket have kinds of their own.
std::vector<TimedTensor> TimedTensorsOf(const std::vector<OrderedTensor>& tensors,
                                        const std::vector<TensorTimes>& times) {
  std::map<FusionKind, uint32_t> kinds;
  uint32_t next_kind = 0;
  std::vector<TimedTensor> timed(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Request& tensor = tensors[i].tensor;
    uint32_t kind = next_kind;
    if (MayShare(tensor)) {
      kind = kinds.try_emplace(FusionKindOf(tensor), next_kind).first->second;
    }
    if (kind == next_kind) ++next_kind;
    timed[i] = {.ready_ns = times[i].ready_ns,
                .due_ns = times[i].due_ns,
                .bytes = tensor.byte_count(),
                .kind = kind,
                .needs_up_to = tensors[i].needs_up_to,
                .may_slice = MayShare(tensor) && tensor.memory == MemoryKind::kHost};
  }
  return timed;
}

struct TransferSchedule {
  std::vector<TransferUnit> units;
  std::vector<TransferStep> steps;
  int64_t iteration_ns = 0;  // predicted
};

TransferSchedule ScheduleOf(std::vector<TransferUnit> units, const TransferModel& model,
                            int64_t length_ns, PlanOptions::PlanOrder order) {
  TransferSchedule schedule;
  schedule.units = std::move(units);
  schedule.steps = order == PlanOptions::PlanOrder::kDue
                       ? OrderByDue(schedule.units, model)
                       : OrderInBins(schedule.units, model, length_ns);
  schedule.iteration_ns =
      PredictIteration(schedule.units, schedule.steps, length_ns, model).length_ns;
  return schedule;
}

// Less than the other schedule is predicted to take, by more than a percent.
bool SavesAPercent(const TransferSchedule& schedule, const TransferSchedule& other) {
  return schedule.iteration_ns < other.iteration_ns - other.iteration_ns / 100;
}

// Small slices let urgent tensors pass, and large ones save calls. Which of both counts more
// depends on the tensors, so slices of three sizes are predicted. Larger ones must gain a percent,
// because they suit only the times that were seen.
TransferSchedule BestSchedule(const std::vector<TimedTensor>& timed, const TransferModel& model,
                              int64_t length_ns, const PlanOptions& options) {
  UnitOptions unit_options{.threshold_bytes = options.batch_bytes,
                           .bucket_bytes_max = options.batch_bytes_max,
                           .slice_bytes = options.slice_bytes,
                           .length_ns = length_ns};
  const auto schedule_of = [&] {
    return ScheduleOf(MakeUnits(timed, model, unit_options), model, length_ns, options.order);
  };
  TransferSchedule best = schedule_of();
  if (options.slice_bytes > 0) return best;
  const int64_t predicted_ns = best.iteration_ns;
  for (const int64_t share : {int64_t{25}, int64_t{6}}) {
    unit_options.slice_bytes = std::max<uint64_t>(model.BytesWithin(predicted_ns / share), 1);
    TransferSchedule other = schedule_of();
    if (SavesAPercent(other, best)) best = std::move(other);
  }
  return best;
}

// The same with the buckets of the plan by arrival, unless smaller ones save a percent: each step
// takes time of a processor, which no model of calls knows.
TransferSchedule WithFewSteps(TransferSchedule best, const std::vector<TransferUnit>& buckets,
                              const TransferModel& model, int64_t length_ns,
                              const PlanOptions& options) {
  const bool has_sizes = options.slice_bytes > 0 || options.batch_bytes > 0;
  if (has_sizes || best.steps.size() <= buckets.size()) return best;
  TransferSchedule few = ScheduleOf(buckets, model, length_ns, options.order);
  return SavesAPercent(best, few) ? std::move(best) : std::move(few);
}

// The steps of a plan, each with the elements that it reduces.
Plan PlanOfSteps(const std::vector<OrderedTensor>& tensors, const TransferSchedule& schedule,
                 uint64_t epoch) {
  const std::vector<TransferUnit>& units = schedule.units;
  std::vector<Bucket> buckets(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    for (const size_t tensor : units[i].tensors) {
      buckets[i].tensors.push_back(tensors[tensor].tensor);
    }
  }
  std::vector<PlanStep> plan_steps;
  plan_steps.reserve(schedule.steps.size());
  for (const TransferStep& step : schedule.steps) {
    if (units[step.unit].slice_bytes == 0) {
      plan_steps.push_back({.bucket = step.unit});
      continue;
    }
    const uint64_t element_bytes = ElementBytes(buckets[step.unit].tensors.front().type);
    plan_steps.push_back({.bucket = step.unit,
                          .begin = step.begin / element_bytes,
                          .count = step.bytes / element_bytes});
  }
  return Plan::FromSteps(std::move(buckets), std::move(plan_steps), epoch);
}

// The same order of buckets as a plan, as units.
std::vector<TransferUnit> UnitsOf(const Plan& plan, const std::vector<OrderedTensor>& tensors,
                                  const std::vector<TimedTensor>& timed) {
  std::map<std::string, size_t> positions;
  for (size_t i = 0; i < tensors.size(); ++i) positions[tensors[i].tensor.name] = i;
  std::vector<std::vector<size_t>> buckets;
  for (const Bucket& bucket : plan.buckets()) {
    std::vector<size_t>& members = buckets.emplace_back();
    for (const Request& tensor : bucket.tensors) members.push_back(positions.at(tensor.name));
  }
  return UnitsOfBuckets(timed, buckets);
}

std::string GroupObstacleOf(const std::vector<OrderedTensor>& tensors) {
  const bool has_group = std::any_of(tensors.begin(), tensors.end(), [](const OrderedTensor& one) {
    return !one.tensor.group.empty();
  });
  return has_group ? "a tensor group stays together where it is" : "";
}

std::string ObstacleOf(const std::vector<OrderedTensor>& tensors, const IterationFacts& facts) {
  if (facts.times.empty()) return "the times of the iterations differ too much";
  if (facts.samples.empty()) return "there are no times of calls";
  return GroupObstacleOf(tensors);
}

// The program may submit a tensor only when it has another one, which is not gathered before all
// others are reduced.
std::string SplitObstacleOf(const std::vector<OrderedTensor>& tensors) {
  for (const OrderedTensor& one : tensors) {
    if (one.needs_up_to < 0) continue;
    return fmt::format("tensor '{}' needs another one of its iteration", one.tensor.name);
  }
  return GroupObstacleOf(tensors);
}

// The time at which the program needs the first tensor of each bucket.
std::vector<int64_t> DueTimesOf(const Plan& plan, const std::vector<OrderedTensor>& tensors,
                                const std::vector<TensorTimes>& times) {
  std::map<std::string, int64_t> due_ns;
  for (size_t i = 0; i < times.size(); ++i) due_ns[tensors[i].tensor.name] = times[i].due_ns;
  std::vector<int64_t> bucket_due_ns(plan.buckets().size(), 0);
  for (size_t i = 0; i < bucket_due_ns.size() && !times.empty(); ++i) {
    int64_t& earliest_ns = bucket_due_ns[i];
    earliest_ns = std::numeric_limits<int64_t>::max();
    for (const Request& tensor : plan.buckets()[i].tensors) {
      earliest_ns = std::min(earliest_ns, due_ns.at(tensor.name));
    }
  }
  return bucket_due_ns;
}

Plan InHalves(const Plan& by_arrival, const std::vector<int64_t>& due_ns, uint64_t epoch) {
  using enum PlanStep::StepHalf;
  std::vector<PlanStep> steps = by_arrival.steps();
  std::vector<PlanStep> gathers;
  for (PlanStep& step : steps) {
    if (!MayHalve(by_arrival.buckets()[step.bucket])) continue;
    step.half = kReduce;
    gathers.push_back(step);
    gathers.back().half = kGather;
  }
  // Of buckets that are needed at the same time, the last one that was reduced goes first.
  std::ranges::sort(gathers, [&due_ns](const PlanStep& a, const PlanStep& b) {
    if (a.bucket == b.bucket) return a.begin < b.begin;
    if (due_ns[a.bucket] != due_ns[b.bucket]) return due_ns[a.bucket] < due_ns[b.bucket];
    return a.bucket > b.bucket;
  });
  steps.insert(steps.end(), gathers.begin(), gathers.end());
  return Plan::FromSteps(by_arrival.buckets(), std::move(steps), epoch);
}

TimedPlan MakeSplitPlan(const std::vector<OrderedTensor>& tensors, TimedPlan by_arrival,
                        const std::vector<TensorTimes>& times) {
  by_arrival.obstacle = SplitObstacleOf(tensors);
  if (!by_arrival.obstacle.empty()) return by_arrival;
  const Plan& plan = by_arrival.plan;
  return {.plan = InHalves(plan, DueTimesOf(plan, tensors, times), plan.epoch()), .is_split = true};
}

}  // namespace

std::string TimedPlan::Text() const {
  if (forecast) return fmt::format("by time: {}", forecast->Text());
  if (!is_split) return fmt::format("is by arrival: {}", obstacle);
  const auto gather_count =
      std::ranges::count(plan.steps(), PlanStep::StepHalf::kGather, &PlanStep::half);
  return fmt::format("in halves: {} steps reduce, {} gather; nothing is predicted",
                     plan.steps().size() - static_cast<size_t>(gather_count), gather_count);
}

std::string PlanForecast::Text() const {
  constexpr double kMillisecondNs = 1e6;
  return fmt::format(
      "an iteration of {:.2f} ms is predicted, {:.2f} ms by arrival, at least {:.2f} ms; {} "
      "steps{}",
      static_cast<double>(iteration_ns) / kMillisecondNs,
      static_cast<double>(arrival_ns) / kMillisecondNs,
      static_cast<double>(bound_ns) / kMillisecondNs, step_count,
      is_by_arrival ? ", by arrival" : "");
}

TimedPlan MakeTimedPlan(const std::vector<OrderedTensor>& tensors, const IterationFacts& facts,
                        const PlanOptions& options, uint64_t epoch) {
  TimedPlan by_arrival{.plan = Plan::FromOrder(tensors, options, epoch)};
  if (options.order == PlanOptions::PlanOrder::kSplit) {
    return MakeSplitPlan(tensors, std::move(by_arrival), facts.times);
  }
  by_arrival.obstacle = ObstacleOf(tensors, facts);
  if (!by_arrival.obstacle.empty()) return by_arrival;
  Result<TransferModel> model = TransferModel::FromSamples(facts.samples);
  if (!model) {
    by_arrival.obstacle = model.error().message();
    return by_arrival;
  }
  const std::vector<TimedTensor> timed = TimedTensorsOf(tensors, facts.times);
  const std::vector<TransferUnit> buckets = UnitsOf(by_arrival.plan, tensors, timed);
  const TransferSchedule schedule =
      WithFewSteps(BestSchedule(timed, *model, facts.length_ns, options), buckets, *model,
                   facts.length_ns, options);
  PlanForecast forecast;
  forecast.computing_ns = facts.length_ns;
  forecast.spread_ns = facts.spread_ns;
  forecast.bound_ns = LowerBound(schedule.units, facts.length_ns, *model);
  forecast.iteration_ns = schedule.iteration_ns;
  forecast.arrival_ns =
      PredictIteration(buckets, OrderAsGiven(buckets), facts.length_ns, *model).length_ns;
  if (!IsWorthIt(forecast.iteration_ns, forecast.arrival_ns)) {
    forecast.is_by_arrival = true;
    forecast.iteration_ns = forecast.arrival_ns;
    forecast.step_count = by_arrival.plan.steps().size();
    by_arrival.forecast = forecast;
    by_arrival.model = std::move(*model);
    return by_arrival;
  }
  forecast.step_count = schedule.steps.size();
  return {.plan = PlanOfSteps(tensors, schedule, epoch),
          .forecast = forecast,
          .model = std::move(*model)};
}

}  // namespace lmdbio::sync
