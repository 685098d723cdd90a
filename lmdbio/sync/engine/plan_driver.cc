#include "lmdbio/sync/engine/plan_driver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

PlanDriver::PlanDriver(const PlanDriverParts& parts, std::chrono::milliseconds patience)
    : parts_(parts), patience_(patience), last_progress_(Clock::now()) {}

void PlanDriver::Follow(Plan plan, const std::vector<Request>& pending) {
  LMDBIO_CHECK(!followed_);
  followed_.emplace(std::move(plan));
  const Plan& followed = followed_->progress.plan();
  for (const Bucket& bucket : followed.buckets()) {
    Response& response = followed_->buckets.emplace_back();
    response.tensors = bucket.tensors;
    const Request& first = bucket.tensors.front();
    if (first.operation != Operation::kAllGather) continue;
    // A plan holds gathers of equal rows only. A rank with other rows has another request, and
    // declines.
    const int64_t rows = first.shape.empty() ? 1 : first.shape[0];
    response.rows.assign(static_cast<size_t>(parts_.collectives.size()), rows);
  }
  followed_->numbers.resize(followed.buckets().size());
  ++parts_.counters.plan_count;
  parts_.tracer.PlanAdopted(followed.epoch());
  static_cast<void>(parts_.transport.take_ring());  // it was for a round
  last_progress_ = Clock::now();
  for (const Request& request : pending) {
    // A proposal for another plan has no data and needs no answer any more.
    if (request.operation != Operation::kAdoptPlan) Submit(request);
  }
}

void PlanDriver::Submit(const Request& request) {
  last_progress_ = Clock::now();
  if (followed_->progress.Submit(request)) return;
  followed_->left_over.push_back(request);
  followed_->must_decline = true;
}

// The order of the questions matters:
//
//   must decline, and a bucket begins?  -> decline: a full bucket must not leave after the program
//                                          left the plan
//   next step possible?                 -> make it, also to complete a bucket of an abandoned plan;
//                                          decline it if the forecast is wrong
//   wake-up?                            -> a peer waits for this step, or has given up: look at its
//                                          health
//   patience over?                      -> decline; without a tensor only a step that begins a
//                                          bucket is impossible
Result<PlanDriver::PlanStepOutcome> PlanDriver::Step(Clock::time_point now) {
  const PlanProgress& progress = followed_->progress;
  if (followed_->must_decline && progress.is_at_begin()) return Decline();
  if (const PlanStep* const step = progress.ReadyStep()) {
    return followed_->is_wrong ? Decline() : Make(*step);
  }
  if (parts_.transport.take_ring()) {
    followed_->is_called = true;
    LMDBIO_TRY_VOID(parts_.health.Check());
  }
  if (!is_out_of_patience(now)) return PlanStepOutcome::kIdle;
  return Decline();
}

// The next bucket lacks a tensor, others were submitted, and some thread waits for them: a thread
// of this rank, or of the rank that has sent a wake-up. If no thread is known to wait, the program
// may be computing, so the rank waits longer.
bool PlanDriver::is_out_of_patience(Clock::time_point now) const {
  const bool is_called = followed_->is_called;
  if (!followed_->progress.has_pending() && !is_called) return false;
  const int times = parts_.queue.is_waited_for() || is_called ? 1 : kUnwaitedPatience;
  return now - last_progress_ > times * patience_;
}

// Ranks that follow different plans, or are at different steps, have different digests. The
// collective call compares the digests before data moves.
uint64_t PlanDriver::CallDigest() const {
  const uint64_t digest = followed_->progress.plan().digest();
  return (digest ^ followed_->made_count) * 0x9E3779B97F4A7C15 + followed_->made_count;
}

Result<CallOutcome> PlanDriver::Call(const PlanStep& step, std::span<Task* const> tasks) {
  const Response& response = followed_->buckets[step.bucket];
  const CallTag tag{.digest = CallDigest(), .is_declined = false};
  // In a round a barrier is done when all ranks have requested it. In a plan no rank knows the
  // requests of the others, so the barrier is a call of its own.
  if (response.tensors.front().operation == Operation::kBarrier) {
    return parts_.collectives.Barrier(tag);
  }
  return parts_.executor.PerformStep(response, step, tasks, tag);
}

Result<PlanDriver::PlanStepOutcome> PlanDriver::Make(const PlanStep& step) {
  const Response& response = followed_->buckets[step.bucket];
  const std::vector<Task*> tasks = parts_.tasks.Find(response.tensors);
  for (const Task* const task : tasks) LMDBIO_CHECK(task != nullptr);
  uint64_t& number = followed_->numbers[step.bucket];
  if (step.begins_bucket()) {
    ++parts_.counters.cycle_count;
    number = parts_.tracer.Agreed(tasks);
  } else {
    parts_.tracer.Resumed(number);
  }
  LMDBIO_TRY(const CallOutcome outcome, Call(step, tasks));
  last_progress_ = Clock::now();
  if (outcome == CallOutcome::kDeclined) {
    if (step.begins_bucket()) return Abandon();
    // All ranks make the steps of a bucket that was begun. A part of it is reduced already.
    return Fail(ErrorCode::kInternal, fmt::format("tensor '{}': the ranks made different steps",
                                                  response.tensors.front().name));
  }
  ++followed_->made_count;
  // A wake-up was for this step. After the plan was abandoned it may be for a round, because a peer
  // that has made its last step begins one.
  if (!followed_->is_abandoned) {
    static_cast<void>(parts_.transport.take_ring());
    followed_->is_called = false;
  }
  parts_.tracer.Unpacked(tasks);
  const bool is_complete = followed_->progress.plan().Completes(step);
  followed_->progress.Advance();
  // Before the first step of an iteration, which begins a bucket. The other ranks make that step
  // when they have its tensors, so this rank declines it when it could make it.
  if (parts_.plan_times != nullptr && followed_->progress.next_step() == 0) {
    const auto now_ns = last_progress_.time_since_epoch() / std::chrono::nanoseconds(1);
    followed_->is_wrong = parts_.plan_times->OnIterationEnd(now_ns);
  }
  if (is_complete) parts_.tasks.Finish(response.tensors, {});
  const bool is_over = followed_->is_abandoned && followed_->progress.ReadyStep() == nullptr;
  return is_over ? PlanStepOutcome::kAbandoned : PlanStepOutcome::kMade;
}

Result<PlanDriver::PlanStepOutcome> PlanDriver::Decline() {
  LMDBIO_TRY(const CallOutcome outcome, parts_.executor.Decline(CallDigest()));
  LMDBIO_CHECK(outcome == CallOutcome::kDeclined);
  return Abandon();
}

// Every rank comes here at the same step. All of them have the tensors of the buckets that were
// begun, and the same steps are left of these.
PlanDriver::PlanStepOutcome PlanDriver::Abandon() {
  followed_->is_abandoned = true;
  ++followed_->made_count;  // so that no other call has the tag of the declined one
  followed_->taken_back = followed_->progress.TakePending();
  const bool is_over = followed_->progress.ReadyStep() == nullptr;
  return is_over ? PlanStepOutcome::kAbandoned : PlanStepOutcome::kMade;
}

AbandonedPlan PlanDriver::TakeAbandoned() {
  Followed& plan = *followed_;
  ++parts_.counters.plan_end_count;
  parts_.tracer.PlanEnded(plan.progress.plan().epoch());
  AbandonedPlan abandoned{
      .unsent = std::move(plan.left_over), .done = {}, .is_called = plan.is_called};
  std::move(plan.taken_back.begin(), plan.taken_back.end(), std::back_inserter(abandoned.unsent));
  for (const size_t bucket : plan.progress.begun_buckets()) {
    abandoned.done.push_back(std::move(plan.buckets[bucket]));
  }
  followed_.reset();
  return abandoned;
}

}  // namespace lmdbio::sync
