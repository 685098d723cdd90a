#include "lmdbio/sync/engine/plan_driver.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
//   must decline?      -> decline: a full bucket must not leave after the program left the plan
//   next bucket full?  -> send it
//   wake-up?           -> a peer waits for this bucket, or has given up: look at its health
//   patience over?     -> decline
Result<PlanDriver::PlanStep> PlanDriver::Step(Clock::time_point now) {
  if (!followed_->must_decline) {
    if (const Bucket* const bucket = followed_->progress.TakeReady()) return SendBucket(*bucket);
    if (parts_.transport.take_ring()) {
      followed_->is_called = true;
      LMDBIO_TRY_VOID(parts_.health.Check());
    }
    if (is_out_of_patience(now)) followed_->must_decline = true;
  }
  if (followed_->must_decline) return Decline();
  return PlanStep::kIdle;
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

// Ranks that follow different plans, or are at different buckets, have different digests. The
// collective call compares the digests before data moves.
uint64_t PlanDriver::CallDigest() const {
  const uint64_t digest = followed_->progress.plan().digest();
  return (digest ^ followed_->sent_count) * 0x9E3779B97F4A7C15 + followed_->sent_count;
}

Result<PlanDriver::PlanStep> PlanDriver::SendBucket(const Bucket& bucket) {
  const auto index = static_cast<size_t>(&bucket - followed_->progress.plan().buckets().data());
  const Response& response = followed_->buckets[index];
  const std::vector<Task*> tasks = parts_.tasks.Find(response.tensors);
  for (const Task* const task : tasks) LMDBIO_CHECK(task != nullptr);
  ++parts_.counters.cycle_count;
  parts_.tracer.Agreed(tasks);
  const CallTag tag{.digest = CallDigest(), .is_declined = false};
  // In a round a barrier is done when all ranks have requested it. In a plan no rank knows the
  // requests of the others, so the barrier is a call of its own.
  const bool is_barrier = response.tensors.front().operation == Operation::kBarrier;
  LMDBIO_TRY(const CallOutcome outcome, is_barrier ? parts_.collectives.Barrier(tag)
                                                   : parts_.executor.Perform(response, tasks, tag));
  last_progress_ = Clock::now();
  if (outcome == CallOutcome::kDeclined) {
    followed_->declined = response.tensors;
    return PlanStep::kAbandoned;
  }
  ++followed_->sent_count;
  static_cast<void>(parts_.transport.take_ring());  // it was for this bucket
  followed_->is_called = false;
  parts_.tracer.Unpacked(tasks);
  parts_.tasks.Finish(response.tensors, {});
  return PlanStep::kSent;
}

Result<PlanDriver::PlanStep> PlanDriver::Decline() {
  LMDBIO_TRY(const CallOutcome outcome, parts_.executor.Decline(CallDigest()));
  LMDBIO_CHECK(outcome == CallOutcome::kDeclined);
  return PlanStep::kAbandoned;
}

AbandonedPlan PlanDriver::TakeAbandoned() {
  Followed& plan = *followed_;
  ++parts_.counters.plan_end_count;
  parts_.tracer.PlanEnded(plan.progress.plan().epoch());
  AbandonedPlan abandoned{
      .unsent = std::move(plan.declined), .done = {}, .is_called = plan.is_called};
  const auto add = [&abandoned](std::vector<Request> requests) {
    std::move(requests.begin(), requests.end(), std::back_inserter(abandoned.unsent));
  };
  add(std::move(plan.left_over));
  add(plan.progress.TakePending());
  const size_t done_count = plan.buckets.empty() ? 0 : plan.sent_count % plan.buckets.size();
  plan.buckets.resize(done_count);
  abandoned.done = std::move(plan.buckets);
  followed_.reset();
  return abandoned;
}

}  // namespace lmdbio::sync
