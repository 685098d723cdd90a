// lmdbio/sync/engine/engine.h - the helper thread: takes submissions, agrees with the other ranks
// on an order, executes it, and completes the tasks.
//
//   SubmissionQueue --> Engine --> TaskTable (tasks in progress, completion)
//                         |
//                         +--> RoundDriver --> responses --> Executor
//                         |         |
//                         |    PlanAgreement --> a plan, or groups for the RoundDriver
//                         |                        |
//                         +--> PlanDriver <--------+ --> buckets --> Executor
//                         |
//                         +--> StallMonitor, called while any of them waits
//
// The engine is in one of two modes. It runs rounds until the ranks have agreed on a plan, then
// follows the plan until some rank abandons it. With another coordinator than "topo" and "caramel"
// it stays in rounds, and the buckets of the plan become tensor groups of the coordinator.
//
// Source: dissertation 6.2.2, 6.3.4 and figure 6.15; docs/sync.md "Flow".
#ifndef LMDBIO_SYNC_ENGINE_ENGINE_H_
#define LMDBIO_SYNC_ENGINE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/engine/counter_publisher.h"
#include "lmdbio/sync/engine/executor.h"
#include "lmdbio/sync/engine/plan_driver.h"
#include "lmdbio/sync/engine/stall_monitor.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/engine/task_table.h"
#include "lmdbio/sync/graph/plan_agreement.h"
#include "lmdbio/sync/graph/plan_times.h"
#include "lmdbio/sync/on_device/sync_device.h"
#include "lmdbio/sync/rounds/round_driver.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

// Checks this rank and its peers, and then calls a function. The engine looks for stalls in it,
// because every collective and every round checks the health while it waits.
class WatchfulHealth final : public ranks::Health {
 public:
  // health  must outlive this
  explicit WatchfulHealth(ranks::Health& health) : health_(health) {}

  // While no other thread calls Check.
  void set_on_check(std::function<Status()> on_check) { on_check_ = std::move(on_check); }

  Status Check() override {
    LMDBIO_TRY_VOID(health_.Check());
    return on_check_ ? on_check_() : Status();
  }
  void GiveUp(const Error& why) override { health_.GiveUp(why); }

  // As Check, in any thread, but looks at ranks only.
  // Errors: kPeerFailed  as Check
  Status CheckRanks() { return health_.Check(); }

 private:
  ranks::Health& health_;
  std::function<Status()> on_check_;
};

// The objects that an engine drives. All of them must outlive the engine.
struct EngineParts {
  WatchfulHealth& health;
  Transport& transport;
  Collectives& collectives;
  Coordinator& coordinator;
  SyncDevice* device = nullptr;                     // null: no tensors on a GPU
  std::shared_ptr<PlanTimes> plan_times = nullptr;  // null: no plans by time
};

// Threads: any, except Start and the destructor.
class Engine {
 public:
  // timeline  null: none
  // log       receives notes and stall reports, in the helper thread; may be empty
  Engine(const SyncOptions& options, const EngineParts& parts,
         std::unique_ptr<trace::Timeline> timeline,
         std::function<void(const std::string& line)> log);
  // Ends the thread. Tasks in progress fail.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // All ranks have called Shutdown, and none waits for another any more.
  bool is_peaceful() const { return is_peaceful_.load(); }

  // Starts the helper thread.
  // cores   where it may run; empty: anywhere
  // Errors: kResourceExhausted  no thread
  Status Start(CoreList cores);

  const std::shared_ptr<SubmissionQueue>& queue() const { return queue_; }
  Executor& executor() { return executor_; }
  // Null: no plans by time.
  const PlanTimes* plan_times() const { return parts_.plan_times.get(); }
  const PlanOptions& plan_options() const { return agreement_.options(); }
  const SyncTracer& tracer() const { return tracer_; }
  // Follows plans of this order, if all ranks do. Before the first submission.
  // Returns: a handle that is done when all ranks have given their order
  // Errors: as SubmissionQueue::Submit
  Result<Handle> FollowOrder(std::vector<OrderedTensor> order);
  // The barrier of this name is the last operation of all ranks. With it the thread ends on every
  // rank in the same round, and no rank reports a failure.
  static constexpr std::string_view kLastBarrier = "lmdbio.shutdown";
  SyncCounters counters() const { return counters_.Read(); }

 private:
  using Clock = std::chrono::steady_clock;
  void Run(const CoreList& cores);
  Status Step();
  void TakeEvents();
  void Accept(const ProgramEvent& event);
  Status StepRounds();
  Status PerformAll(std::vector<Response> responses);
  Status Perform(const Response& response);
  void AdvanceAgreement(const std::vector<Response>& responses);
  void Adopt(TimedPlan timed);
  Status StepPlan();
  void ReturnToRounds();
  void Rest(const IdleWait& wait);
  Error WhyClosed() const;
  void FailAll(const Error& why);
  void Note(const std::string& line) const;

  EngineParts parts_;
  std::function<void(const std::string& line)> log_;
  SyncTracer tracer_;
  std::shared_ptr<SubmissionQueue> queue_;
  Executor executor_;
  CounterPublisher counters_;
  TaskTable tasks_;
  StallMonitor stalls_;
  RoundDriver rounds_;
  PlanAgreement agreement_;
  PlanDriver plans_;
  Clock::time_point last_check_;
  std::atomic<bool> is_ending_{false};
  std::atomic<bool> is_peaceful_{false};  // all ranks end: the last barrier is done
  std::thread thread_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_ENGINE_H_
