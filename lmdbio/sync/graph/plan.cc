#include "lmdbio/sync/graph/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <xxhash.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// Slices end with whole lines of memory, so that no line is reduced in two calls.
constexpr uint64_t kLineBytes = 64;

// A unit is never split: one tensor, or a group.
struct Unit {
  std::vector<size_t> tensors;  // positions in the order
  int64_t needs_up_to = -1;     // the largest number of a unit that it needs; -1: none
  uint64_t bytes = 0;           // of a fusion buffer
};
using GroupBy = PlanOptions::GroupBy;

// Numbers the units by the positions of their first tensors. A tensor of a group joins the unit of
// the group if all tensors that it needs come before the first tensor of that unit. Then all of
// them are in earlier units, and the tensors that need this one stay in later units.
std::vector<Unit> UnitsOf(const std::vector<OrderedTensor>& tensors) {
  std::vector<Unit> units;
  std::vector<int64_t> last_unit(tensors.size());  // the last unit begun up to each position
  std::map<std::pair<FusionKind, std::string>, size_t> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OrderedTensor& ordered = tensors[i];
    LMDBIO_CHECK(ordered.needs_up_to < static_cast<int64_t>(i));
    const Request& tensor = ordered.tensor;
    size_t unit = units.size();
    if (tensor.operation == Operation::kAllReduce && !tensor.group.empty()) {
      size_t& known = groups.try_emplace({FusionKindOf(tensor), tensor.group}, unit).first->second;
      const bool may_join = known < units.size() &&
                            ordered.needs_up_to < static_cast<int64_t>(units[known].tensors[0]);
      if (!may_join) known = unit;
      unit = known;
    }
    if (unit == units.size()) units.emplace_back();
    units[unit].tensors.push_back(i);
    last_unit[i] = static_cast<int64_t>(units.size()) - 1;
    if (ordered.needs_up_to >= 0) {
      // Tensors up to this position are in units up to this one, so it bounds all units that are
      // needed.
      const int64_t needs = last_unit[static_cast<size_t>(ordered.needs_up_to)];
      units[unit].needs_up_to = std::max(units[unit].needs_up_to, needs);
    }
    if (tensor.operation == Operation::kAllReduce) units[unit].bytes += FusedBytes(tensor);
  }
  return units;
}

// Distributes units to segments and buckets, in order. A unit of a segment needs only units of
// earlier segments, so the order of buckets within a segment is free.
//
// With num_groups = G, a segment takes about 1/G of the remaining weight, in bytes or tensors, and
// the division is repeated with the rest after each segment. A unit joins the segment if at least
// half of it fits the share.
class BucketMaker {
 public:
  BucketMaker(const std::vector<OrderedTensor>& tensors, const std::vector<Unit>& units,
              const PlanOptions& options)
      : tensors_(tensors), options_(options), groups_left_(options.num_groups) {
    for (const Unit& unit : units) {
      if (!IsFusable(unit)) continue;
      ++units_left_;
      weight_left_ += WeightOf(unit);
    }
  }

  void Add(const Unit& unit) {
    if (unit.needs_up_to >= first_unit_ || (IsFusable(unit) && !HasRoom(unit))) EndStretch();
    ++unit_count_;
    if (!IsFusable(unit)) {
      buckets_.push_back({{tensors_[unit.tensors[0]].tensor}});
      return;
    }
    --units_left_;
    stretch_weight_ += WeightOf(unit);
    const auto [open, is_new] = open_.try_emplace(KindOf(unit), Open{buckets_.size(), 0});
    if (is_new) buckets_.emplace_back();
    open->second.bytes += unit.bytes;
    for (const size_t i : unit.tensors) {
      buckets_[open->second.bucket].tensors.push_back(tensors_[i].tensor);
    }
  }

  std::vector<Bucket> Take() { return std::move(buckets_); }

 private:
  struct Open {
    size_t bucket = 0;
    uint64_t bytes = 0;
  };

  bool IsFusable(const Unit& unit) const {
    return tensors_[unit.tensors[0]].tensor.operation == Operation::kAllReduce;
  }
  // Without num_groups, bytes.
  uint64_t WeightOf(const Unit& unit) const {
    const bool is_by_tensors = options_.num_groups > 0 && options_.group_by == GroupBy::kTensors;
    return is_by_tensors ? unit.tensors.size() : unit.bytes;
  }
  FusionKind KindOf(const Unit& unit) const {
    return FusionKindOf(tensors_[unit.tensors[0]].tensor);
  }

  // With num_groups all kinds count together, else the bytes of one kind.
  bool HasRoom(const Unit& unit) const {
    if (open_.empty()) return true;
    if (options_.num_groups > 0) {
      if (groups_left_ <= 1) return true;
      if (units_left_ < groups_left_) return false;  // every later group must get a unit
      const uint64_t share = weight_left_ / groups_left_;
      return 2 * stretch_weight_ + WeightOf(unit) <= 2 * share;
    }
    const auto open = open_.find(KindOf(unit));
    if (open == open_.end()) return true;
    const uint64_t limit = SegmentLimit();
    return limit > 0 && open->second.bytes + unit.bytes <= limit;
  }

  // The size of a bucket of this segment, without num_groups.
  uint64_t SegmentLimit() const {
    const uint64_t threshold = options_.fusion.threshold_bytes;
    if (options_.last_bucket_bytes == 0) return threshold;
    return std::min(threshold, std::max(options_.last_bucket_bytes, weight_left_ / 2));
  }

  // Ends the segment. The buckets of all kinds end with it, so that no bucket waits for a late
  // tensor of a rare kind.
  void EndStretch() {
    if (!open_.empty() && groups_left_ > 1) --groups_left_;
    weight_left_ -= stretch_weight_;
    stretch_weight_ = 0;
    first_unit_ = unit_count_;
    open_.clear();
  }

  const std::vector<OrderedTensor>& tensors_;
  const PlanOptions& options_;
  std::vector<Bucket> buckets_;
  std::map<FusionKind, Open> open_;  // buckets of this segment
  int64_t first_unit_ = 0;           // of this segment
  int64_t unit_count_ = 0;
  uint64_t stretch_weight_ = 0;
  uint64_t units_left_ = 0;   // fusable units that are in no bucket yet
  uint64_t weight_left_ = 0;  // of fusable units of this segment and of later ones
  uint64_t groups_left_ = 0;  // this segment included
};

bool MayCut(const Bucket& bucket) { return bucket.tensors.size() == 1 && MayHalve(bucket); }

std::vector<PlanStep> StepsOf(const std::vector<Bucket>& buckets, uint64_t slice_bytes) {
  std::vector<PlanStep> steps;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    const uint64_t count = SliceElementsOf(buckets[bucket], slice_bytes);
    if (count == 0) {
      steps.push_back({.bucket = bucket});
      continue;
    }
    const uint64_t end = buckets[bucket].tensors[0].element_count();
    for (uint64_t begin = 0; begin < end; begin += count) {
      steps.push_back({bucket, begin, std::min(count, end - begin)});
    }
  }
  return steps;
}

using StepHalf = PlanStep::StepHalf;

// Steps of one bucket and half, in their order.
void CheckSlices(const Bucket& bucket, const std::vector<PlanStep>& steps) {
  LMDBIO_CHECK(!steps.empty());
  if (steps.size() == 1 && !steps[0].is_slice()) {
    LMDBIO_CHECK(steps[0].begin == 0);
    return;
  }
  LMDBIO_CHECK(MayCut(bucket));
  const uint64_t element_count = bucket.tensors[0].element_count();
  uint64_t end = 0;
  for (const PlanStep& step : steps) {
    LMDBIO_CHECK(step.is_slice() && step.begin == end && step.count <= element_count - end);
    end += step.count;
  }
  LMDBIO_CHECK(end == element_count);
}

// Each element of each bucket is reduced once, and the first step of a bucket is the first in the
// order: see PlanStep::begins_bucket.
void CheckPartition(const std::vector<Bucket>& buckets, const std::vector<PlanStep>& steps) {
  std::vector<std::vector<PlanStep>> reductions(buckets.size());
  std::vector<std::vector<PlanStep>> gathers(buckets.size());
  for (const PlanStep& step : steps) {
    LMDBIO_CHECK(step.bucket < buckets.size());
    const bool is_gather = step.half == StepHalf::kGather;
    LMDBIO_CHECK(is_gather || gathers[step.bucket].empty());
    (is_gather ? gathers : reductions)[step.bucket].push_back(step);
  }
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    std::vector<PlanStep> reduced = reductions[bucket];
    CheckSlices(buckets[bucket], reduced);
    const StepHalf half = gathers[bucket].empty() ? StepHalf::kBoth : StepHalf::kReduce;
    LMDBIO_CHECK(half == StepHalf::kBoth || MayHalve(buckets[bucket]));
    for (PlanStep& step : reduced) {
      LMDBIO_CHECK(step.half == half);
      step.half = StepHalf::kGather;
    }
    LMDBIO_CHECK(half == StepHalf::kBoth || reduced == gathers[bucket]);
  }
}

// The halves follow from the other numbers: what comes twice is first reduced, and then gathered.
uint64_t DigestOf(uint64_t epoch, const std::vector<Bucket>& buckets,
                  const std::vector<PlanStep>& steps) {
  std::vector<uint64_t> numbers = {epoch};
  for (const Bucket& bucket : buckets) {
    Response response;
    response.tensors = bucket.tensors;
    numbers.push_back(response.digest());
  }
  for (const PlanStep& step : steps) {
    numbers.insert(numbers.end(), {step.bucket, step.begin, step.count});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof numbers[0]);
}

}  // namespace

Plan Plan::FromOrder(const std::vector<OrderedTensor>& tensors, const PlanOptions& options,
                     uint64_t epoch) {
  const std::vector<Unit> units = UnitsOf(tensors);
  BucketMaker maker(tensors, units, options);
  for (const Unit& unit : units) maker.Add(unit);
  std::vector<Bucket> buckets = maker.Take();
  std::vector<PlanStep> steps = StepsOf(buckets, options.slice_bytes);
  return FromSteps(std::move(buckets), std::move(steps), epoch);
}

Plan Plan::FromSteps(std::vector<Bucket> buckets, std::vector<PlanStep> steps, uint64_t epoch) {
  CheckPartition(buckets, steps);
  Plan plan;
  plan.epoch_ = epoch;
  plan.digest_ = DigestOf(epoch, buckets, steps);
  plan.buckets_ = std::move(buckets);
  plan.steps_ = std::move(steps);
  return plan;
}

bool Plan::Completes(const PlanStep& step) const {
  if (step.half == StepHalf::kReduce) return false;
  return !step.is_slice() ||
         step.begin + step.count == buckets_[step.bucket].tensors[0].element_count();
}

bool MayHalve(const Bucket& bucket) {
  const Request& first = bucket.tensors.front();
  return first.operation == Operation::kAllReduce && first.memory == MemoryKind::kHost;
}

uint64_t SliceElementsOf(const Bucket& bucket, uint64_t slice_bytes) {
  if (slice_bytes == 0 || !MayCut(bucket)) return 0;
  const uint64_t bytes = bucket.tensors[0].byte_count();
  const uint64_t least_bytes = (bytes + kSlicesMax - 1) / kSlicesMax;
  const uint64_t cut_bytes = AlignUp(std::max(slice_bytes, least_bytes), kLineBytes);
  return bytes > cut_bytes ? cut_bytes / ElementBytes(bucket.tensors[0].type) : 0;
}

PlanProgress::PlanProgress(Plan plan) : plan_(std::move(plan)), slots_(plan_.buckets().size()) {
  for (size_t bucket = 0; bucket < slots_.size(); ++bucket) {
    const std::vector<Request>& tensors = plan_.buckets()[bucket].tensors;
    slots_[bucket].are_taken.resize(tensors.size());
    for (size_t slot = 0; slot < tensors.size(); ++slot) {
      LMDBIO_CHECK(places_.try_emplace(tensors[slot].name, PlanPosition{bucket, slot}).second);
    }
  }
}

// A tensor of a bucket that was begun in this iteration belongs to the next one: it cannot be
// submitted again before its last step. So one flag for each tensor serves both iterations
// (docs/coordinators.md "Proofs").
bool PlanProgress::Submit(const Request& request) {
  if (is_abandoned_) return false;
  const auto found = places_.find(request.name);
  if (found == places_.end()) return false;
  const PlanPosition place = found->second;
  BucketFill& slots = slots_[place.bucket];
  if (slots.are_taken[place.slot] != 0) return false;
  if (plan_.buckets()[place.bucket].tensors[place.slot] != request) return false;
  slots.are_taken[place.slot] = 1;
  ++slots.taken_count;
  ++pending_count_;
  return true;
}

bool PlanProgress::is_at_begin() const {
  return next_step_ < plan_.steps().size() && plan_.steps()[next_step_].begins_bucket();
}

size_t PlanProgress::missing_count() const {
  if (!is_at_begin()) return 0;
  const BucketFill& slots = slots_[plan_.steps()[next_step_].bucket];
  return slots.are_taken.size() - slots.taken_count;
}

// Only the next step may be made, even if later buckets are full. All ranks make the steps in one
// order, so no rank waits in one step for a rank that waits in another.
const PlanStep* PlanProgress::ReadyStep() const {
  if (next_step_ == plan_.steps().size() || missing_count() > 0) return nullptr;
  return &plan_.steps()[next_step_];
}

void PlanProgress::Advance() {
  LMDBIO_CHECK(ReadyStep() != nullptr);
  const PlanStep& step = plan_.steps()[next_step_];
  BucketFill& slots = slots_[step.bucket];
  if (step.begins_bucket()) {
    Clear(slots);
    begun_.push_back(step.bucket);
  }
  slots.is_open = !plan_.Completes(step);
  ++next_step_;
  if (is_abandoned_) {
    SkipToLeft();
  } else if (next_step_ == plan_.steps().size()) {
    next_step_ = 0;
    begun_.clear();
  }
}

void PlanProgress::Clear(BucketFill& slots) {
  pending_count_ -= slots.taken_count;
  slots.taken_count = 0;
  std::fill(slots.are_taken.begin(), slots.are_taken.end(), uint8_t{0});
}

// The steps of an iteration complete all of its buckets. So those that are left of this one are
// behind the next step, before the end of the list.
void PlanProgress::SkipToLeft() {
  const std::vector<PlanStep>& steps = plan_.steps();
  while (next_step_ < steps.size() && !slots_[steps[next_step_].bucket].is_open) ++next_step_;
}

// Begins with the next step, so the tensors of this iteration come before those of the next one.
std::vector<Request> PlanProgress::TakePending() {
  const std::vector<PlanStep>& steps = plan_.steps();
  std::vector<Request> pending;
  pending.reserve(pending_count_);
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t bucket = steps[(next_step_ + i) % steps.size()].bucket;
    BucketFill& slots = slots_[bucket];
    for (size_t slot = 0; slot < slots.are_taken.size(); ++slot) {
      if (slots.are_taken[slot] != 0) pending.push_back(plan_.buckets()[bucket].tensors[slot]);
    }
    Clear(slots);
  }
  is_abandoned_ = true;
  SkipToLeft();
  return pending;
}

}  // namespace lmdbio::sync
