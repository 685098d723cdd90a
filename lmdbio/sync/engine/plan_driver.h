// lmdbio/sync/engine/plan_driver.h - follows a plan: makes its steps in order, without control
// messages.
//
// The first step of a bucket is made when the program has submitted all of its tensors and all
// steps before it were made. If the program does something that is not in the plan, this rank
// declines the next bucket that begins. Then all ranks abandon the plan in that very call. They
// make the steps that are left of the buckets that were begun, and return to rounds. A rank also
// declines if it knows that the times of the plan are wrong.
//
// Source: dissertation 6.3.4 and figure 6.15; docs/coordinators.md "Abandoned plans".
#ifndef LMDBIO_SYNC_ENGINE_PLAN_DRIVER_H_
#define LMDBIO_SYNC_ENGINE_PLAN_DRIVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/engine/executor.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/engine/task_table.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/graph/plan_times.h"
#include "lmdbio/sync/request/request.h"
#include "lmdbio/sync/rounds/group_driver.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// The remains of an abandoned plan.
struct AbandonedPlan {
  std::vector<Request> unsent;  // submitted, and not reduced: rounds take over
  std::vector<Response> done;   // the buckets of the unfinished iteration that were reduced
  bool is_called = false;       // another rank has sent a wake-up, and no step has answered it
};

// Threads: the helper thread.
class PlanDriver {
 public:
  using Clock = std::chrono::steady_clock;
  // A rank abandons a plan after this many times the patience if no rank waits for its tensors.
  static constexpr int kUnwaitedPatience = GroupDriver::kUnwaitedPatience;

  // All of them must outlive the driver.
  struct PlanDriverParts {
    Transport& transport;
    ranks::Health& health;
    Collectives& collectives;
    Executor& executor;
    SubmissionQueue& queue;
    SyncTracer& tracer;
    TaskTable& tasks;
    SyncCounters& counters;
    PlanTimes* plan_times = nullptr;  // null: no plans by time
  };

  // patience  as SyncOptions::plan_patience
  PlanDriver(const PlanDriverParts& parts, std::chrono::milliseconds patience);

  bool is_following() const { return followed_.has_value(); }

  // Follows this plan from now on. All ranks do, after the same responses.
  // pending   requests of this rank without a response; they become part of the plan
  // Requires: no plan is followed
  void Follow(Plan plan, const std::vector<Request>& pending);

  // The calls below require is_following.

  // The program has submitted a tensor. If the plan does not contain it, the next bucket is
  // declined.
  void Submit(const Request& request);
  // The submissions that are missing before the next step can be made.
  size_t missing_count() const { return followed_->progress.missing_count(); }

  // Makes the next step if its bucket is full or was begun, or declines it if this rank must
  // abandon the plan, or knows that it is wrong.
  // kAbandoned: another rank or this one has declined, and no bucket is half reduced;
  //             TakeAbandoned follows
  // Errors: as Collectives and Health
  //         kInternal  the ranks have made different steps
  enum class PlanStepOutcome : uint8_t { kIdle, kMade, kAbandoned };
  Result<PlanStepOutcome> Step(Clock::time_point now);

  // Stops following. The bucket that was declined has changed no tensor.
  // Requires: the last Step returned kAbandoned
  AbandonedPlan TakeAbandoned();

 private:
  // A plan that is followed.
  struct Followed {
    explicit Followed(Plan plan) : progress(std::move(plan)) {}
    PlanProgress progress;
    std::vector<Response> buckets;    // of the plan, in the form that the executor takes
    std::vector<uint64_t> numbers;    // [buckets] in the traces, of the last time
    uint64_t made_count = 0;          // calls since the plan was adopted
    std::vector<Request> left_over;   // submitted, and not in the plan
    std::vector<Request> taken_back;  // when the plan was abandoned
    bool must_decline = false;
    bool is_wrong = false;  // this rank knows that its forecast is
    bool is_abandoned = false;
    bool is_called = false;  // another rank has sent a wake-up since the last step
  };
  Result<PlanStepOutcome> Make(const PlanStep& step);
  Result<CallOutcome> Call(const PlanStep& step, std::span<Task* const> tasks);
  Result<PlanStepOutcome> Decline();
  PlanStepOutcome Abandon();
  uint64_t CallDigest() const;
  bool is_out_of_patience(Clock::time_point now) const;

  PlanDriverParts parts_;
  std::chrono::milliseconds patience_;
  Clock::time_point last_progress_;
  std::optional<Followed> followed_;  // none: rounds
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_PLAN_DRIVER_H_
