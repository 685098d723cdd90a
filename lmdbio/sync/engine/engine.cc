#include "lmdbio/sync/engine/engine.h"

#include <algorithm>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/thread_slices.h"
#include "lmdbio/sync/request/fusion.h"

namespace lmdbio::sync {

using sync::Bucket;
using sync::CallOutcome;
using sync::Operation;
using sync::Request;
using sync::Response;

namespace {

// A thread with nothing to do gives a sign of life so often.
constexpr auto kIdleTick = std::chrono::milliseconds(250);
// Where peers cannot be heard, a rank that waits for them looks again after so long.
constexpr auto kRetryPause = std::chrono::milliseconds(1);
// And an idle one comes to a round so often.
constexpr auto kIdleRoundPause = std::chrono::seconds(1);
constexpr auto kRingPause = std::chrono::milliseconds(200);

// A rank that has waited for longer rings for the others.
constexpr auto kRingAfterMax = std::chrono::milliseconds(2000);

// After the n-th plan that did not hold, 2^n iterations go by before the next, and at most 2^this.
constexpr uint64_t kProposalPauseLog = 4;

// A program that does not come to a boundary again in so many lists of responses has changed: what
// was agreed upon is forgotten, and learnt anew.
constexpr uint64_t kAgreedAgeMax = 1000;

// A bucket may miss tensors for so many times the patience if nobody waits for it.
constexpr int kUnwaitedPatience = 10;

// With collectives that all ranks have alike.
sync::PlanOptions PlanOptionsOf(const SyncOptions& options, const sync::Collectives& collectives) {
  const uint64_t bytes =
      options.bucket_bytes > 0 ? options.bucket_bytes : collectives.ample_bytes();
  return {.fusion = {.threshold_bytes = std::min(options.fusion_threshold_bytes, bytes)},
          .num_groups = options.num_groups};
}

uint64_t Mix(uint64_t digest, uint64_t number) {
  return (digest ^ number) * 0x9E3779B97F4A7C15 + number;
}

}  // namespace

Engine::Engine(const SyncOptions& options, const EngineParts& parts, CoreList sync_cores,
               std::unique_ptr<trace::Timeline> timeline,
               std::function<void(const std::string& line)> log)
    : options_(options),
      parts_(parts),
      log_(std::move(log)),
      sync_cores_(std::move(sync_cores)),
      witness_(std::move(timeline)),
      queue_(
          std::make_shared<SubmissionQueue>([transport = &parts.transport] { transport->Wake(); })),
      executor_(parts.collectives, witness_, options.fusion_threshold_bytes,
                options.gradient_bytes),
      rounds_(parts.transport, parts.coordinator, options,
              [health = &parts.health] { return health->Check(); }),
      plan_options_(PlanOptionsOf(options, parts.collectives)),
      stall_watch_({.report = options.stall_report, .limit = options.stall_limit}) {
  if (options.coordinator == "topo") learner_.emplace(plan_options_);
  queue_->SetWaits(learner_ ? SubmissionQueue::Waits::kTold : SubmissionQueue::Waits::kNotTold);
}

Engine::~Engine() {
  is_ending_.store(true);
  if (!is_peaceful_.load()) {
    const Error why = ClosedError();
    parts_.health.GiveUp(why);
    parts_.collectives.Stop(why);
  }
  parts_.transport.Wake();
  if (thread_.joinable()) thread_.join();
}

// Whoever tells of it first, the destructor or the thread, tells all ranks the same.
Error Engine::ClosedError() const {
  return {ErrorCode::kPeerFailed,
          fmt::format("rank {} has closed its synchronizer", parts_.transport.ranks().rank)};
}

Status Engine::Start() {
  last_progress_ = last_round_ = last_check_ = last_ring_ = last_stall_look_ = Clock::now();
  if (!options_.timeline_path.empty()) {
    queue_->set_on_wait(
        [this](const std::string& name, int64_t began_ns) { witness_.Waited(name, began_ns); });
  }
  parts_.health.set_on_check([this] { return LookForStalls(Clock::now()); });
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("no thread: {}", error.what()),
                error.code().value());
  }
  return {};
}

void Engine::Run() {
  {
    const std::lock_guard lock(published_mutex_);
    thread_watch_.emplace();
  }
  Status status = PinThisThread(sync_cores_);
  ShortenThreadSlices();  // the trainer waits for what this thread does in some microseconds
  try {
    while (status && !is_ending_.load()) {
      status = Step();
      Publish();
    }
  } catch (const std::exception& exception) {
    status = Fail(ErrorCode::kResourceExhausted, exception.what());
  }
  if (!status) {
    // Where ranks fall one after the other, all of them tell of the first.
    const Status first = parts_.health.Check();
    FailAll(first ? status.error() : first.error());
  } else if (!is_peaceful_.load()) {
    FailAll(ClosedError());
  } else {
    FailAll(Error(ErrorCode::kInvalidArgument, "the synchronizer was shut down before"));
  }
  if (const Status closed = witness_.Close(); !closed) Note(closed.error().message());
  Publish();
}

Status Engine::Step() {
  const auto now = Clock::now();
  if (now - last_check_ >= ranks::kHealthNap) {
    last_check_ = now;
    LMDBIO_TRY_VOID(parts_.health.Check());
  }
  TakeEvents();
  return walk_ ? StepPlan() : StepRounds();
}

// --- What the program does -------------------------------------------------------------------

void Engine::TakeEvents() {
  for (ProgramEvent& event : queue_->Take()) {
    if (event.submitted != nullptr) {
      Accept(event.submitted);
    } else if (learner_) {
      learner_->OnWaited(event.waited);
    }
  }
}

void Engine::Accept(const TaskPtr& task) {
  const Request& request = task->submission.request;
  tasks_[task->name()] = task;
  task->away_before = away_;
  witness_.Submitted(*task);
  last_progress_ = Clock::now();
  if (learner_ && !walk_) learner_->OnSubmit(task->name());
  if (!walk_) {
    parts_.coordinator.Submit(request);
  } else if (!walk_->Submit(request)) {
    left_out_.push_back(request);
    declines_next_ = true;
  }
}

// Nobody is woken before all are done: who waits for all of them is woken once, and this thread has
// no more to do for them when that one takes its core. What is called back may take long, so those
// come last.
void Engine::Finish(std::span<const Request> tensors, const Status& how) {
  std::vector<TaskMap::iterator> quiet;
  std::vector<TaskMap::iterator> called_back;
  for (const Request& tensor : tensors) {
    const auto found = tasks_.find(tensor.name);
    if (found == tasks_.end()) continue;  // this rank has joined, and never asked
    (found->second->submission.callback ? called_back : quiet).push_back(found);
  }
  counters_.tensor_count += quiet.size() + called_back.size();
  queue_->Release(tensors);
  Publish();  // who has waited for one finds it counted
  std::vector<TaskPtr> unwoken;
  unwoken.reserve(quiet.size());
  for (const TaskMap::iterator& found : quiet) unwoken.push_back(End(found, how));
  for (const TaskPtr& task : unwoken) task->WakeWaiters();
  for (const TaskMap::iterator& found : called_back) End(found, how)->WakeWaiters();
}

TaskPtr Engine::End(TaskMap::iterator found, const Status& how) {
  TaskPtr task = std::move(found->second);
  tasks_.erase(found);
  if (how) {
    witness_.Done(*task);
  } else {
    witness_.Failed(*task);
  }
  const SubmissionQueue::CalledBack scope(*queue_, task->name());
  task->Finish(how);
  return task;
}

void Engine::FailAll(const Error& why) {
  if (!is_peaceful_.load()) {
    parts_.health.GiveUp(why);
    parts_.collectives.Stop(why);
    parts_.transport.Abandon();
    parts_.transport.Ring();  // who sleeps is to hear of it now
  }
  for (ProgramEvent& event : queue_->Close(why)) {
    if (event.submitted != nullptr) tasks_[event.submitted->name()] = event.submitted;
  }
  // Who reads it can submit nothing more.
  if (!is_peaceful_.load() && !is_ending_.load()) Note(why.message());
  for (const auto& [name, task] : std::exchange(tasks_, {})) {
    witness_.Failed(*task);
    task->Finish(
        Fail(why.Copy().Within(fmt::format("tensor '{}' (number {})", name, task->number))));
    task->WakeWaiters();
  }
}

void Engine::Note(const std::string& line) const {
  if (log_) log_(line);
}

// --- RoundPacer ----------------------------------------------------------------------------------

Status Engine::StepRounds() {
  if (rounds_.is_cyclic()) {
    LMDBIO_TRY_VOID(rounds_.SleepToNextCycle());
    TakeEvents();
    return RunRound();
  }
  const bool was_called = parts_.transport.take_ring() || is_called_;
  is_called_ = false;
  const bool is_idle_too_long =
      !parts_.transport.hears_peers() &&
      Clock::now() - std::max(last_progress_, last_round_) > kIdleRoundPause;
  // Ranks of other hosts may be waiting to hear what those of this one lack.
  if (is_idle_too_long) parts_.transport.Ring();
  if (!parts_.coordinator.has_pending() && !was_called && !is_idle_too_long) {
    Rest();
    return {};
  }
  const uint64_t done_before = counters_.tensor_count;
  LMDBIO_TRY_VOID(RunRound());
  if (counters_.tensor_count == done_before && !walk_ && queue_->is_empty()) Rest();
  return {};
}

// Sleeps until there may be something to do.
void Engine::Rest() {
  const bool waits_for_peers = !walk_ && parts_.coordinator.has_pending();
  std::chrono::microseconds limit = kIdleTick;
  if (waits_for_peers && !parts_.transport.hears_peers()) limit = kRetryPause;
  if (const Status flushed = witness_.Rest(); !flushed) Note(flushed.error().message());
  queue_->SetWakeCount(walk_ ? walk_->missing_count() : 1);
  parts_.transport.Sleep(limit, waits_for_peers ? WakeOn::kOrPeerCame : WakeOn::kWakeOrRing);
}

Status Engine::RunRound() {
  if (!stalled_names_.empty()) {
    parts_.coordinator.MarkStalled(std::exchange(stalled_names_, {}));
  }
  const int64_t began_ns = SteadyNanoseconds();
  last_round_ = Clock::now();
  LMDBIO_TRY_VOID(rounds_.Run());
  witness_.Round(++counters_.cycle_count, began_ns);
  counters_.control_message_count = rounds_.counters().exchange_count;
  counters_.control_bytes = rounds_.counters().exchange_bytes;
  return PerformAll(parts_.coordinator.TakeResponses());
}

Status Engine::PerformAll(std::vector<Response> responses) {
  if (responses.empty()) return {};
  last_progress_ = Clock::now();
  responses =
      sync::Fuse(std::move(responses), {.threshold_bytes = options_.fusion_threshold_bytes});
  for (const Response& response : responses) {
    const bool is_last = response.tensors.front().name == kLastBarrier && response.error.empty();
    // Before the program hears that all is done, and perhaps closes at once.
    if (is_last) is_peaceful_.store(true);
    LMDBIO_TRY_VOID(Perform(response));
    if (!is_last) continue;
    is_ending_.store(true);
    return {};
  }
  OnDone(responses);
  Propose();
  AdoptIfAgreed();
  return {};
}

Status Engine::Perform(const Response& response) {
  const Request& first = response.tensors.front();
  if (first.operation == Operation::kAdoptPlan) {
    if (response.error.empty()) {
      agreed_ = first;
      agreed_age_ = 0;
    } else {
      Note(fmt::format("the ranks' plans differ, so they go on without one: {}", response.error));
    }
    Finish(response.tensors, {});
    return {};
  }
  std::vector<Task*> tasks;
  for (const Request& tensor : response.tensors) {
    const auto found = tasks_.find(tensor.name);
    tasks.push_back(found == tasks_.end() ? nullptr : found->second.get());
  }
  Status how;
  if (!response.error.empty()) {
    how = Fail(ErrorCode::kInvalidArgument, response.error);
  } else {
    witness_.Agreed(tasks);
    LMDBIO_TRY(const CallOutcome outcome,
               executor_.Perform(response, tasks, {.digest = response.digest()}));
    if (outcome == CallOutcome::kDeclined) {
      return Fail(
          ErrorCode::kInternal,
          fmt::format("tensor '{}': the ranks came to different collective calls", first.name));
    }
  }
  if (how) witness_.Unpacked(tasks);
  Finish(response.tensors, how);
  return {};
}

// --- Plans -----------------------------------------------------------------------------------

Result<Handle> Engine::FollowOrder(std::vector<sync::OrderedTensor> order) {
  learner_.reset();
  queue_->SetWaits(SubmissionQueue::Waits::kNotTold);
  for (const sync::OrderedTensor& one : order) order_names_.insert(one.tensor.name);
  order_ = std::move(order);
  proposal_epoch_ = 1;
  auto task = std::make_shared<Task>();
  task->submission.request = ProposalOfOrder(proposal_epoch_);
  task->queue = queue_;
  LMDBIO_TRY_VOID(queue_->Submit({task}));
  return Handle(std::move(task));
}

// As any other request, so that rank 0 compares what the ranks mean.
Request Engine::ProposalOfOrder(uint64_t epoch) const {
  const uint64_t digest = sync::Plan::FromOrder(order_, plan_options_, epoch).digest();
  Request request;
  request.name = fmt::format("lmdbio.plan.{}", epoch);
  request.operation = Operation::kAdoptPlan;
  const Bytes bytes = std::as_bytes(std::span(&digest, 1));
  request.extra.assign(bytes.begin(), bytes.end());
  return request;
}

// All ranks see the same responses, so all of them propose and adopt plans at the same places.
void Engine::OnDone(const std::vector<Response>& responses) {
  if (learner_) {
    learner_->OnDone(responses);
  } else {
    for (const Response& response : responses) {
      for (const Request& tensor : response.tensors) {
        if (order_names_.count(tensor.name) > 0) order_done_.insert(tensor.name);
      }
    }
    if (order_done_.size() == order_names_.size()) order_done_.clear();
  }
  if (is_at_boundary()) ++boundary_count_;
}

bool Engine::is_at_boundary() const {
  if (learner_) return learner_->at_boundary();
  return !order_.empty() && order_done_.empty();
}

// After a plan that did not hold, a while goes by before the next one.
void Engine::Propose() {
  const uint64_t ends = std::min<uint64_t>(counters_.plan_end_count, kProposalPauseLog);
  if (ends > 0 && boundary_count_ < uint64_t{1} << ends) return;
  if (learner_) {
    auto proposal = learner_->TakeProposal(proposal_epoch_ + 1);
    if (!proposal) return;
    ++proposal_epoch_;
    parts_.coordinator.Submit(std::move(*proposal));
  } else if (!order_.empty() && proposal_epoch_ <= counters_.plan_end_count) {
    parts_.coordinator.Submit(ProposalOfOrder(++proposal_epoch_));
  }
}

void Engine::AdoptIfAgreed() {
  if (!agreed_) return;
  if (!is_at_boundary()) {
    if (++agreed_age_ < kAgreedAgeMax || !learner_) return;
    agreed_.reset();
    learner_->Forget();
    return;
  }
  const Request agreed = *std::exchange(agreed_, std::nullopt);
  if (!learner_) {
    Follow(sync::Plan::FromOrder(order_, plan_options_, proposal_epoch_));
  } else if (auto plan = learner_->Adopt(agreed)) {
    Follow(std::move(*plan));
  } else {
    Note(fmt::format("no plan: {}", plan.error().message()));
    learner_->Forget();
  }
}

void Engine::Follow(sync::Plan plan) {
  walk_.emplace(std::move(plan));
  buckets_.clear();
  for (const Bucket& bucket : walk_->plan().buckets()) {
    Response& response = buckets_.emplace_back();
    response.tensors = bucket.tensors;
    const Request& first = bucket.tensors.front();
    if (first.operation != Operation::kAllGather) continue;
    // A rank that brings other rows has another request, and declines.
    const int64_t rows = first.shape.empty() ? 1 : first.shape[0];
    response.rows.assign(static_cast<size_t>(parts_.collectives.size()), rows);
  }
  sent_count_ = 0;
  ++counters_.plan_count;
  witness_.PlanAdopted(walk_->plan().epoch());
  queue_->SetWaits(SubmissionQueue::Waits::kNotTold);
  static_cast<void>(parts_.transport.take_ring());
  is_called_ = false;
  for (const Request& request : parts_.coordinator.TakePending()) {
    if (request.operation == Operation::kAdoptPlan || walk_->Submit(request)) continue;
    left_out_.push_back(request);
    declines_next_ = true;
  }
}

Status Engine::StepPlan() {
  if (!declines_next_) {
    if (const Bucket* const bucket = walk_->TakeReady()) {
      return SendBucket(static_cast<size_t>(bucket - walk_->plan().buckets().data()));
    }
    if (parts_.transport.take_ring()) {
      is_called_ = true;
      LMDBIO_TRY_VOID(parts_.health.Check());  // who gives up rings, too
    }
    if (is_out_of_patience()) declines_next_ = true;
  }
  if (declines_next_) return Decline();
  Rest();
  return {};
}

// A tensor of the next bucket does not come, and somebody waits for the others: here, or on a rank
// that has rung.
bool Engine::is_out_of_patience() const {
  if (!walk_->has_pending() && !is_called_) return false;
  const int times = queue_->is_waited_for() || is_called_ ? 1 : kUnwaitedPatience;
  return Clock::now() - last_progress_ > times * options_.plan_patience;
}

Status Engine::SendBucket(size_t bucket) {
  const Response& response = buckets_[bucket];
  std::vector<Task*> tasks;
  for (const Request& tensor : response.tensors) tasks.push_back(tasks_.at(tensor.name).get());
  ++counters_.cycle_count;
  witness_.Agreed(tasks);
  const sync::CallTag tag{.digest = Mix(walk_->plan().digest(), sent_count_), .is_declined = false};
  // In rounds all have asked for a barrier when it is done, which is all there is to it. Here not.
  const bool is_barrier = response.tensors.front().operation == Operation::kBarrier;
  LMDBIO_TRY(const CallOutcome outcome, is_barrier ? parts_.collectives.Barrier(tag)
                                                   : executor_.Perform(response, tasks, tag));
  last_progress_ = Clock::now();
  if (outcome == CallOutcome::kDeclined) {
    EndPlan(response.tensors);
    return {};
  }
  ++sent_count_;
  static_cast<void>(parts_.transport.take_ring());  // it was for this bucket
  is_called_ = false;
  witness_.Unpacked(tasks);
  Finish(response.tensors, {});
  return {};
}

Status Engine::Decline() {
  LMDBIO_TRY(const CallOutcome outcome,
             executor_.Decline(Mix(walk_->plan().digest(), sent_count_)));
  LMDBIO_CHECK(outcome == CallOutcome::kDeclined);
  EndPlan({});
  return {};
}

// Back to rounds, with everything that has not been done.
void Engine::EndPlan(std::vector<Request> unsent) {
  ++counters_.plan_end_count;
  order_done_.clear();
  const size_t sent_now = learner_ || buckets_.empty() ? 0 : sent_count_ % buckets_.size();
  for (size_t bucket = 0; bucket < sent_now; ++bucket) {
    for (const Request& tensor : buckets_[bucket].tensors) order_done_.insert(tensor.name);
  }
  witness_.PlanEnded(walk_->plan().epoch());
  for (std::vector<Request>* rest : {&unsent, &left_out_}) {
    for (Request& request : *rest) parts_.coordinator.Submit(std::move(request));
    rest->clear();
  }
  for (Request& request : walk_->TakePending()) parts_.coordinator.Submit(std::move(request));
  walk_.reset();
  declines_next_ = false;
  boundary_count_ = 0;
  if (learner_) learner_->Forget();
  queue_->SetWaits(learner_ ? SubmissionQueue::Waits::kTold : SubmissionQueue::Waits::kNotTold);
  last_progress_ = Clock::now();
}

// --- Watching --------------------------------------------------------------------------------

std::vector<trace::PendingTensor> Engine::PendingTensors() const {
  std::unordered_map<std::string, std::vector<int>> missing;
  for (sync::Stall& stall : parts_.coordinator.Stalls()) {
    missing[stall.name] = std::move(stall.missing_ranks);
  }
  std::vector<trace::PendingTensor> pending;
  for (const auto& [name, task] : tasks_) {
    const auto found = missing.find(name);
    pending.push_back({name, task->number, WaitsSince(*task),
                       found == missing.end() ? std::vector<int>() : found->second});
  }
  return pending;
}

// Later than it was submitted by the time in which this thread could not look.
Engine::Clock::time_point Engine::WaitsSince(const Task& task) const {
  return task.since + (away_ - task.away_before);
}

// Called at least each kIdleTick, also while a round or a collective waits.
Status Engine::LookForStalls(Clock::time_point now) {
  const auto looked_for = now - last_stall_look_;
  if (looked_for < ranks::kHealthNap) return {};
  last_stall_look_ = now;
  if (looked_for > ranks::kLookMax) away_ += looked_for;
  if (tasks_.empty()) return {};
  const auto oldest = std::min_element(
      tasks_.begin(), tasks_.end(),
      [](const auto& a, const auto& b) { return a.second->since < b.second->since; });
  const auto age = now - WaitsSince(*oldest->second);
  const auto ring_after =
      std::min<std::chrono::milliseconds>(options_.stall_report / 2, kRingAfterMax);
  if (options_.stall_report.count() > 0 && age > ring_after && now - last_ring_ > kRingPause) {
    last_ring_ = now;
    parts_.transport.Ring();
    stalled_names_.clear();
    for (const auto& [name, task] : tasks_) {
      if (now - WaitsSince(*task) > ring_after) stalled_names_.push_back(name);
    }
  }
  const std::vector<trace::PendingTensor> pending = PendingTensors();
  trace::StallFindings findings = stall_watch_.Look(pending, now);
  for (const std::string& line : findings.lines) Note(line);
  for (const size_t index : findings.reported) witness_.Stalled(*tasks_.at(pending[index].name));
  return std::move(findings.status);
}

void Engine::Publish() {
  counters_.collective_count = executor_.counters().collective_count;
  counters_.collective_bytes = executor_.counters().collective_bytes;
  counters_.collective_bytes_min = executor_.counters().collective_bytes_min;
  counters_.collective_bytes_max = executor_.counters().collective_bytes_max;
  const std::lock_guard lock(published_mutex_);
  published_ = counters_;
}

SyncCounters Engine::counters() const {
  const std::lock_guard lock(published_mutex_);
  SyncCounters counters = published_;
  if (!thread_watch_) return counters;
  if (const auto usage = thread_watch_->Read()) {
    counters.thread_cpu_ns = usage->cpu_ns;
    counters.thread_run_delay_ns = usage->run_delay_ns;
  }
  return counters;
}

}  // namespace lmdbio::sync
