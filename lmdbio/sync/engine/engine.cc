#include "lmdbio/sync/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/thread_times.h"
#include "lmdbio/sync/request/fusion.h"

namespace lmdbio::sync {

namespace {

// The last bucket of a plan is so many times smaller than others. Each halving is another call
// (docs/results/sync.md "The last bucket").
constexpr uint64_t kShrinkage = 4;

// After a failure, for copies that are under way. They take milliseconds, unless a stream of the
// program is never done.
constexpr auto kDrainLimit = std::chrono::milliseconds(500);

PlanOptions::PlanOrder OrderOf(const SyncOptions& options) {
  if (options.coordinator != "caramel" || options.order == "arrival") {
    return PlanOptions::PlanOrder::kArrival;
  }
  if (options.order == "split") return PlanOptions::PlanOrder::kSplit;
  return options.order == "bins" ? PlanOptions::PlanOrder::kBins : PlanOptions::PlanOrder::kDue;
}

// The bucket size of ranks that reduce on their GPUs. A call takes some 45 us besides its bytes,
// and a GPU reads and writes so many bytes of each of 4 ranks in about the same time.
constexpr uint64_t kAmpleBytesOnGpu = uint64_t{16} << 20;

uint64_t AmpleBytesOf(const EngineParts& parts) {
  const uint64_t bytes = parts.collectives.ample_bytes();
  const ArenaMover* const arena = parts.device != nullptr ? parts.device->arena() : nullptr;
  if (arena == nullptr) return bytes;
  return std::max(bytes, std::min(kAmpleBytesOnGpu, arena->chunk_bytes()));
}

// The same on every rank, because the options are, and so are ample_bytes() and whether there are
// arenas.
PlanOptions PlanOptionsOf(const SyncOptions& options, const EngineParts& parts) {
  const bool is_chosen = options.bucket_bytes == 0;
  const uint64_t bytes = is_chosen ? AmpleBytesOf(parts) : options.bucket_bytes;
  uint64_t last_bytes = options.last_bucket_bytes;
  if (last_bytes == 0 && is_chosen) last_bytes = bytes / kShrinkage;
  return {.fusion = {.threshold_bytes = std::min(options.fusion_threshold_bytes, bytes)},
          .last_bucket_bytes = last_bytes,
          .slice_bytes = options.slice_bytes,
          .num_groups = options.num_groups,
          .group_by = options.group_by == "tensors" ? PlanOptions::GroupBy::kTensors
                                                    : PlanOptions::GroupBy::kBytes,
          .order = OrderOf(options),
          .batch_bytes = options.bucket_bytes,
          .batch_bytes_max = options.fusion_threshold_bytes};
}

PlanAgreement::Source SourceOf(const SyncOptions& options) {
  if (options.follows_plans()) return PlanAgreement::Source::kLearned;
  return options.num_groups > 0 ? PlanAgreement::Source::kLearnedGroups
                                : PlanAgreement::Source::kNone;
}

// The tensors of a plan that groups may contain.
size_t GroupableCountOf(const Plan& plan) {
  size_t count = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (bucket.tensors.front().operation == Operation::kAllReduce) count += bucket.tensors.size();
  }
  return count;
}

SubmissionQueue::Waits WaitsFor(const PlanAgreement& agreement) {
  return agreement.is_learning() ? SubmissionQueue::Waits::kTold : SubmissionQueue::Waits::kNotTold;
}

}  // namespace

Engine::Engine(const SyncOptions& options, const EngineParts& parts,
               std::unique_ptr<trace::Timeline> timeline,
               std::function<void(const std::string& line)> log)
    : parts_(parts),
      log_(std::move(log)),
      tracer_(std::move(timeline)),
      queue_(
          std::make_shared<SubmissionQueue>([transport = &parts.transport] { transport->Wake(); })),
      executor_(parts.collectives, tracer_, options.fusion_threshold_bytes, options.gradient_bytes,
                parts.device),
      counters_(executor_),
      tasks_(*queue_, tracer_, counters_),
      stalls_({.report = options.stall_report, .limit = options.stall_limit},
              {tasks_, parts.coordinator, parts.transport, tracer_},
              [this](const std::string& line) { Note(line); }),
      rounds_(parts.transport, parts.coordinator,
              {.pacing = options.pacing,
               .cycle_time = options.cycle_time,
               .gs_cycles = options.gs_cycles},
              [health = &parts.health] { return health->Check(); },
              {.patience = options.plan_patience,
               .is_waited_for = [queue = queue_.get()] { return queue->is_waited_for(); }}),
      agreement_(PlanOptionsOf(options, parts), SourceOf(options)),
      plans_({parts.transport, parts.health, parts.collectives, executor_, *queue_, tracer_, tasks_,
              counters_.current(), parts.plan_times.get()},
             options.plan_patience),
      last_check_(Clock::now()) {
  executor_.set_plan_times(parts.plan_times.get());
  queue_->SetWaits(WaitsFor(agreement_));
  if (!options.timeline_path.empty()) {
    queue_->set_on_wait(
        [this](const std::string& name, int64_t began_ns) { tracer_.Waited(name, began_ns); });
  }
}

Engine::~Engine() {
  is_ending_.store(true);
  // The thread may wait inside a round or a collective, and only a failure ends these waits. After
  // the last barrier no rank waits for another, so no failure may be recorded.
  if (!is_peaceful_.load()) {
    const Error why = WhyClosed();
    parts_.health.GiveUp(why);
    parts_.collectives.Stop(why);
    if (parts_.device != nullptr) parts_.device->Stop(why);
  }
  parts_.transport.Wake();
  if (thread_.joinable()) thread_.join();
  parts_.health.set_on_check({});  // collectives that wait for the others to leave check it, too
}

// The destructor and the thread report the same failure, so the first of them does not matter. A
// rank often closes because it has heard of the end of another one, which must be named then.
Error Engine::WhyClosed() const {
  const Status others = parts_.health.CheckRanks();
  if (!others) return others.error().Copy();
  return {ErrorCode::kPeerFailed,
          fmt::format("rank {} has closed its synchronizer", parts_.transport.ranks().rank)};
}

Status Engine::Start(CoreList cores) {
  // Before the thread starts, because WatchfulHealth takes no lock.
  parts_.health.set_on_check([this]() -> Status {
    // A thread of the program may have found a failure of the GPU in Submit. Then it submits
    // nothing more, and the other ranks would wait for it.
    if (parts_.device != nullptr) LMDBIO_TRY_VOID(parts_.device->Check());
    return stalls_.Look(Clock::now());
  });
  try {
    thread_ = std::thread([this, cores = std::move(cores)] { Run(cores); });
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot start the helper thread: {}", error.what()),
                error.code().value());
  }
  return {};
}

void Engine::Run(const CoreList& cores) {
  ::pthread_setname_np(::pthread_self(), "lmdbio-sync");  // for ps, top and profilers
  counters_.WatchThisThread();
  Status status = PinThisThread(cores);
  ShortenThreadSlices();  // the trainer waits for work that takes this thread microseconds
  try {
    while (status && !is_ending_.load()) {
      status = Step();
      counters_.Publish();
    }
  } catch (const std::exception& exception) {
    // An exception must not leave the thread. It becomes a failure that all ranks learn.
    status = Fail(ErrorCode::kResourceExhausted, exception.what());
  }
  if (!status) {
    // If ranks fail one after the other, all of them report the first failure.
    const Status first = parts_.health.Check();
    FailAll(first ? status.error() : first.error());
  } else if (!is_peaceful_.load()) {
    FailAll(WhyClosed());
  } else {
    FailAll(
        Error(ErrorCode::kInvalidArgument, "the synchronizer was shut down; create another one"));
  }
  if (const Status closed = tracer_.Close(); !closed) Note(closed.error().message());
  counters_.Publish();
}

Status Engine::Step() {
  if (!plans_.is_following()) LMDBIO_TRY_VOID(rounds_.AwaitCycle());
  // Waits inside rounds and collectives check the health by themselves. This check is for a thread
  // that is idle or always finds work. It is also the sign of life of this rank.
  const auto now = Clock::now();
  if (now - last_check_ >= ranks::kHealthNap) {
    last_check_ = now;
    LMDBIO_TRY_VOID(parts_.health.Check());
  }
  TakeEvents();
  return plans_.is_following() ? StepPlan() : StepRounds();
}

// --- Submissions -------------------------------------------------------------------------------

void Engine::TakeEvents() {
  for (ProgramEvent& event : queue_->Take()) {
    if (event.submitted != nullptr) {
      Accept(event);
    } else {
      agreement_.OnWaited(event.waited, event.program_ns);
    }
  }
}

void Engine::Accept(const ProgramEvent& event) {
  const TaskPtr& task = event.submitted;
  tasks_.Add(task);
  stalls_.OnSubmitted(*task);
  tracer_.Submitted(*task);
  const Request& request = task->submission.request;
  if (plans_.is_following()) {
    plans_.Submit(request);
    return;
  }
  rounds_.NoteProgress(Clock::now());
  if (!rounds_.groups().is_following()) {
    agreement_.OnSubmit(task->name(), event.program_ns);
  }
  rounds_.groups().Submit(request);
}

// --- Rounds ------------------------------------------------------------------------------------

Status Engine::StepRounds() {
  if (!rounds_.TakeDue(Clock::now())) {
    Rest(rounds_.idle_wait());
    return {};
  }
  SyncCounters& counters = counters_.current();
  const uint64_t done_before = counters.tensor_count;
  const int64_t began_ns = SteadyNanoseconds();
  LMDBIO_TRY(std::vector<Response> responses, rounds_.Run(stalls_.TakeOverdueNames()));
  tracer_.Round(++counters.cycle_count, began_ns);
  counters.control_message_count = rounds_.counters().exchange_count;
  counters.control_bytes = rounds_.counters().exchange_bytes;
  LMDBIO_TRY_VOID(PerformAll(std::move(responses)));
  if (rounds_.is_cyclic() || plans_.is_following()) return {};
  // The round led to nothing: the next one can wait for a peer or the program.
  if (counters.tensor_count == done_before && queue_->is_empty()) Rest(rounds_.idle_wait());
  return {};
}

Status Engine::PerformAll(std::vector<Response> responses) {
  if (responses.empty()) return {};
  // As large as the buckets of plans: each call costs the same in a round, and the bytes of a small
  // one are still in the cache when they are reduced and copied back.
  responses = Fuse(std::move(responses), agreement_.options().fusion);
  for (const Response& response : responses) {
    const bool is_last = response.tensors.front().name == kLastBarrier && response.error.empty();
    // Set before the program learns that the barrier is done, because it may destroy the engine at
    // once.
    if (is_last) {
      // After the barrier all operations are done, on GPUs, too.
      if (parts_.device != nullptr) {
        LMDBIO_TRY_VOID(parts_.device->AwaitAll());
        LMDBIO_TRY_VOID(parts_.device->LeaveInPeace());
      }
      is_peaceful_.store(true);
    }
    LMDBIO_TRY_VOID(Perform(response));
    if (!is_last) continue;
    is_ending_.store(true);
    return {};
  }
  AdvanceAgreement(responses);
  return {};
}

Status Engine::Perform(const Response& response) {
  const Request& first = response.tensors.front();
  if (first.operation == Operation::kAdoptPlan) {
    // Ranks that cannot agree on a plan stay in rounds, and the proposal is answered without an
    // error.
    if (response.error.empty()) {
      agreement_.OnAgreed(first);
    } else {
      Note(fmt::format("no plan: the plans of the ranks differ: {}", response.error));
    }
    tasks_.Finish(response.tensors, {});
    return {};
  }
  if (!response.error.empty()) {
    tasks_.Finish(response.tensors, Fail(ErrorCode::kInvalidArgument, response.error));
    return {};
  }
  const std::vector<Task*> tasks = tasks_.Find(response.tensors);
  tracer_.Agreed(tasks);
  LMDBIO_TRY(const CallOutcome outcome,
             executor_.Perform(response, tasks, {.digest = response.digest()}));
  // No rank declines in a round. All ranks execute the same responses, so differing digests show a
  // defect, and no rank may continue.
  if (outcome == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kInternal,
                fmt::format("tensor '{}': the ranks made different collective calls", first.name));
  }
  tracer_.Unpacked(tasks);
  tasks_.Finish(response.tensors, {});
  return {};
}

// All ranks have the same responses, so all of them propose and adopt plans at the same place.
// While groups are followed nothing is learned.
void Engine::AdvanceAgreement(const std::vector<Response>& responses) {
  if (rounds_.groups().is_following()) {
    if (!rounds_.groups().TakeDone(responses)) return;
    ++counters_.current().plan_end_count;
    tracer_.PlanEnded(agreement_.epoch());
    agreement_.OnAbandoned({});
    queue_->SetWaits(WaitsFor(agreement_));
    return;
  }
  agreement_.OnDone(responses);
  std::vector<TransferSample> samples;
  if (parts_.plan_times != nullptr && agreement_.needs_samples()) {
    samples = parts_.plan_times->Samples();
  }
  if (auto proposal = agreement_.TakeProposal(std::move(samples))) {
    parts_.coordinator.Submit(std::move(*proposal));
  }
  Result<std::optional<TimedPlan>> plan = agreement_.TakePlan();
  if (!plan) {
    Note(fmt::format("no plan: {}", plan.error().message()));
  } else if (*plan) {
    Adopt(std::move(**plan));
  }
}

// TakePending is collective; all ranks call it after the same list of responses. The plan driver
// takes the unanswered requests over as submissions.
void Engine::Adopt(TimedPlan timed) {
  if (parts_.plan_times != nullptr) {
    parts_.plan_times->OnPlan(timed);
    Note(parts_.plan_times->Text());
  }
  Plan& plan = timed.plan;
  queue_->SetWaits(SubmissionQueue::Waits::kNotTold);  // nothing is learned meanwhile
  const size_t tensor_count = GroupableCountOf(plan);
  const uint32_t num_groups = agreement_.options().num_groups;
  if (tensor_count < num_groups && counters_.current().plan_count == 0) {
    Note(fmt::format("num_groups {}: an iteration reduces only {} tensors; each of them is a group",
                     num_groups, tensor_count));
  }
  if (agreement_.makes_groups()) {
    ++counters_.current().plan_count;
    tracer_.PlanAdopted(plan.epoch());
    rounds_.groups().Follow(plan);
  } else {
    plans_.Follow(std::move(plan), parts_.coordinator.TakePending());
  }
}

// --- Plans -------------------------------------------------------------------------------------

// A thread of the program changes the agreement here without a lock. The helper thread looks at it
// only when this rank has submitted something, and the lock of the queue orders that after this
// call.
Result<Handle> Engine::FollowOrder(std::vector<OrderedTensor> order) {
  auto task = std::make_shared<Task>();
  task->submission.request = agreement_.FollowOrder(std::move(order));
  task->queue = queue_;
  queue_->SetWaits(WaitsFor(agreement_));
  LMDBIO_TRY_VOID(queue_->Submit({task}));
  return Handle(std::move(task));
}

Status Engine::StepPlan() {
  // One collective call a step. So submissions, waits and failures that came meanwhile count before
  // the next one.
  LMDBIO_TRY(const PlanDriver::PlanStepOutcome outcome, plans_.Step(Clock::now()));
  switch (outcome) {
    case PlanDriver::PlanStepOutcome::kMade:
      break;
    case PlanDriver::PlanStepOutcome::kIdle:
      // No wake-up before the next bucket is complete: fewer of them can change nothing.
      Rest({.limit = RoundDriver::kIdleTick, .submission_count = plans_.missing_count()});
      break;
    case PlanDriver::PlanStepOutcome::kAbandoned:
      ReturnToRounds();
      break;
  }
  return {};
}

// Every rank comes here after the same step. OnAbandoned comes before SetWaits, because the
// agreement decides whether the queue must report waits from now on.
void Engine::ReturnToRounds() {
  AbandonedPlan abandoned = plans_.TakeAbandoned();
  if (parts_.plan_times != nullptr && parts_.plan_times->OnAbandoned()) {
    Note(parts_.plan_times->WrongText());
  }
  agreement_.OnAbandoned(abandoned.done);
  for (Request& request : abandoned.unsent) parts_.coordinator.Submit(std::move(request));
  queue_->SetWaits(WaitsFor(agreement_));
  rounds_.NoteProgress(Clock::now());
  // The peer that sent the wake-up still waits for a round.
  if (abandoned.is_called) rounds_.DemandRound();
}

// --- Sleep and end -----------------------------------------------------------------------------

// Sleeps until there may be something to do.
void Engine::Rest(const IdleWait& wait) {
  if (const Status flushed = tracer_.Rest(); !flushed) Note(flushed.error().message());
  queue_->SetWakeCount(wait.submission_count);
  parts_.transport.Sleep(wait.limit, wait.wake_on);
}

void Engine::FailAll(const Error& why) {
  // The failure is recorded first, so that a peer which one of the later calls wakes finds the
  // cause.
  if (!is_peaceful_.load()) {
    parts_.health.GiveUp(why);
    parts_.collectives.Stop(why);
    parts_.transport.Abandon(why);
    parts_.transport.Ring();  // a sleeping peer learns of the failure now
  }
  for (ProgramEvent& event : queue_->Close(why)) {
    if (event.submitted != nullptr) tasks_.Add(event.submitted);
  }
  // The program may free its tensors when their operations have failed.
  if (parts_.device != nullptr && !is_peaceful_.load()) {
    parts_.device->Poison();
    parts_.device->Drain(Clock::now() + kDrainLimit);
  }
  queue_->End();
  // The queue is closed before: a program that reads the note can submit nothing more.
  if (!is_peaceful_.load() && !is_ending_.load()) Note(why.message());
  tasks_.FailAll(why);
}

void Engine::Note(const std::string& line) const {
  if (log_) log_(line);
}

}  // namespace lmdbio::sync
