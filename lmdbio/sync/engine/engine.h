// lmdbio/sync/engine/engine.h - the helper thread: takes what the program submits, agrees with the
// other ranks on an order, does it, and tells the program.
//
// Source: dissertation 6.2.2, 6.3.4 and figure 6.15; docs/sync.md "Flow".
#ifndef LMDBIO_SYNC_ENGINE_ENGINE_H_
#define LMDBIO_SYNC_ENGINE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/thread_usage.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/engine/executor.h"
#include "lmdbio/sync/engine/round_pacer.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/transport/transport.h"
#include "lmdbio/trace/stall_report.h"

namespace lmdbio::sync {

// Looks after this rank and its peers, and lets the engine look after its tensors whenever a
// collective waits.
class WatchfulHealth final : public ranks::Health {
 public:
  explicit WatchfulHealth(ranks::Health& health) : health_(health) {}

  // Before any thread calls Check.
  void set_on_check(std::function<Status()> on_check) { on_check_ = std::move(on_check); }

  Status Check() override {
    LMDBIO_TRY_VOID(health_.Check());
    return on_check_ ? on_check_() : Status();
  }
  void GiveUp(const Error& why) override { health_.GiveUp(why); }

 private:
  ranks::Health& health_;
  std::function<Status()> on_check_;
};

// What an engine works with. All of it must outlive the engine.
struct EngineParts {
  WatchfulHealth& health;
  Transport& transport;
  sync::Collectives& collectives;
  sync::Coordinator& coordinator;
};

// Threads: any, but for Start and the destructor.
class Engine {
 public:
  // sync_cores  where the thread may run; empty: anywhere
  // timeline    null: none
  Engine(const SyncOptions& options, const EngineParts& parts, CoreList sync_cores,
         std::unique_ptr<trace::Timeline> timeline,
         std::function<void(const std::string& line)> log);
  // Ends the thread. What is under way fails.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Errors: kResourceExhausted  no thread
  Status Start();

  const std::shared_ptr<SubmissionQueue>& queue() const { return queue_; }
  Executor& executor() { return executor_; }
  const sync::PlanOptions& plan_options() const { return plan_options_; }
  SyncTracer& witness() { return witness_; }
  // Follows plans of this order, if all ranks do. Before anything is submitted.
  // Returns: done when all ranks have said what they follow
  // Errors: as SubmissionQueue::Submit
  Result<Handle> FollowOrder(std::vector<sync::OrderedTensor> order);
  // The barrier of this name is the last that ranks do: with it the thread ends in peace, on every
  // rank in the same round.
  static constexpr std::string_view kLastBarrier = "lmdbio.shutdown";
  SyncCounters counters() const;

 private:
  using Clock = std::chrono::steady_clock;
  using TaskMap = std::unordered_map<std::string, TaskPtr>;  // by name
  void Run();
  Status Step();
  void TakeEvents();
  void Accept(const TaskPtr& task);
  Status StepRounds();
  Status RunRound();
  Status PerformAll(std::vector<sync::Response> responses);
  Status Perform(const sync::Response& response);
  void OnDone(const std::vector<sync::Response>& responses);
  sync::Request ProposalOfOrder(uint64_t epoch) const;
  bool is_at_boundary() const;
  void Propose();
  void AdoptIfAgreed();
  void Follow(sync::Plan plan);
  Status StepPlan();
  Status SendBucket(size_t bucket);
  Status Decline();
  void EndPlan(std::vector<sync::Request> unsent);
  bool is_out_of_patience() const;
  void Rest();
  Status LookForStalls(Clock::time_point now);
  Error ClosedError() const;
  Clock::time_point WaitsSince(const Task& task) const;
  std::vector<trace::PendingTensor> PendingTensors() const;
  void Finish(std::span<const sync::Request> tensors, const Status& how);
  TaskPtr End(TaskMap::iterator found, const Status& how);
  void FailAll(const Error& why);
  void Note(const std::string& line) const;
  void Publish();

  const SyncOptions options_;
  EngineParts parts_;
  std::function<void(const std::string& line)> log_;
  CoreList sync_cores_;
  SyncTracer witness_;
  std::shared_ptr<SubmissionQueue> queue_;
  Executor executor_;
  RoundPacer rounds_;
  TaskMap tasks_;  // under way

  // A plan, if this engine makes or has one.
  sync::PlanOptions plan_options_;
  std::optional<sync::PlanLearner> learner_;     // none where nothing is learnt
  std::vector<sync::OrderedTensor> order_;       // of a graph that was given
  std::unordered_set<std::string> order_names_;  // of its tensors
  std::unordered_set<std::string> order_done_;   // in this iteration, while there is no plan
  uint64_t boundary_count_ = 0;                  // since the last plan
  uint64_t proposal_epoch_ = 0;                  // of the last proposal
  std::optional<sync::Request> agreed_;          // all ranks want a plan, from the next boundary on
  uint64_t agreed_age_ = 0;                      // lists of responses since
  std::optional<sync::PlanProgress> walk_;       // none: rounds
  std::vector<sync::Response> buckets_;          // of that plan, as what is to be done
  uint64_t sent_count_ = 0;                      // buckets that are done, in this plan
  std::vector<sync::Request> left_out_;          // submitted, and not in the plan
  bool declines_next_ = false;
  bool is_called_ = false;  // another rank has rung, and nothing has come of it yet

  Clock::time_point last_progress_;
  Clock::time_point last_round_;
  Clock::time_point last_check_;
  Clock::time_point last_ring_;
  Clock::time_point last_stall_look_;
  Clock::duration away_{0};  // for which this thread was stopped: nobody has waited meanwhile
  trace::StallWatch stall_watch_;
  std::vector<std::string> stalled_names_;  // to be told to the coordinator

  SyncCounters counters_;
  mutable std::mutex published_mutex_;
  SyncCounters published_;
  std::atomic<bool> is_ending_{false};
  std::atomic<bool> is_peaceful_{false};
  std::optional<ThreadWatch> thread_watch_;  // under published_mutex_; once the thread runs
  std::thread thread_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_ENGINE_H_
