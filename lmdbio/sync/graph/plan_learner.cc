#include "lmdbio/sync/graph/plan_learner.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "lmdbio/sync/graph/plan_proposal.h"

namespace lmdbio::sync {
namespace {

// The largest iteration. A program with a new name for every tensor never ends an iteration, so the
// learner starts anew at this limit.
constexpr size_t kIterationTensorsMax = 1 << 16;

// An iteration of a plan by time is seen so often after it was first repeated. Then its times are
// the least of five iterations, without the first ones, which are slow. The number of iterations
// follows from the responses, so all ranks propose after the same one.
constexpr uint64_t kTimedIterations = 8;

// Whether a plan can hold the response. A plan sends no control messages, so it cannot hold an
// operation with row counts that ranks must exchange first, an error or a join.
bool IsLearnable(const Response& response) {
  if (!response.error.empty() || response.tensors.empty()) return false;
  switch (response.tensors.front().operation) {
    case Operation::kAllReduce:
    case Operation::kBroadcast:
    case Operation::kReduceScatter:
    case Operation::kBarrier:
      return true;
    case Operation::kAllGather:
      return std::adjacent_find(response.rows.begin(), response.rows.end(),
                                std::not_equal_to<>()) == response.rows.end();
    case Operation::kAllToAll:
    case Operation::kJoin:
    case Operation::kAdoptPlan:
      return false;
  }
  return false;
}

}  // namespace

// A submission stores one number: how many waits came before it. NeedsOf turns that into a
// dependency when the tensor is done.
void PlanLearner::OnSubmit(std::string_view name, int64_t program_ns) {
  names_[std::string(name)].submissions.push_back({first_wait_ + waits_.size(), {}});
  if (timing_) timing_->OnSubmit(name, program_ns);
}

// The wait is for the last submission of the name. If that is not done, DoneOne fills in its
// number. If it was done in this iteration, its number is known now. A wait for a tensor of an
// older iteration is no dependency.
void PlanLearner::OnWaited(std::string_view name, int64_t program_ns) {
  if (timing_) timing_->OnWaited(name, program_ns);
  const auto found = names_.find(std::string(name));
  if (found == names_.end()) return;  // submitted before this learner was created or reset
  Known& known = found->second;
  if (!known.submissions.empty()) {
    AddWait({}, &known.submissions.back());
  } else if (known.done_at >= begin_) {
    AddWait({known.done_at, -1}, nullptr);
  }
}

void PlanLearner::OnDone(const std::vector<Response>& responses) {
  for (const Response& response : responses) {
    const bool is_adoption =
        !response.tensors.empty() && response.tensors.front().operation == Operation::kAdoptPlan;
    if (is_adoption) {
      names_.erase(response.tensors.front().name);
      continue;
    }
    const bool is_learnable = IsLearnable(response);
    for (const Request& tensor : response.tensors) DoneOne(tensor);
    if (!is_learnable) {
      // Two iterations must be alike after this response, because the one that it interrupts is
      // incomplete.
      previous_.clear();
      BeginIteration();
    }
  }
}

void PlanLearner::Forget() {
  previous_.clear();
  proposal_.clear();
  is_proposal_taken_ = false;
  // Dropping submissions is safe: a tensor of a later proposal was executed twice after this call,
  // so its second submission came after this call too.
  names_.clear();
  first_wait_ += waits_.size();
  waits_.clear();
  settled_count_ = 0;
  BeginIteration();
}

std::optional<Request> PlanLearner::TakeProposal(uint64_t epoch,
                                                 std::vector<TransferSample> samples) {
  if (!has_proposal()) return std::nullopt;
  is_proposal_taken_ = true;
  PlanProposal proposal;
  proposal.epoch = epoch;
  proposal.digest = DigestOf(proposal_);
  proposal.needs.reserve(proposal_.size());
  for (const LearnedTensor& seen : proposal_) {
    proposal.needs.push_back(static_cast<uint32_t>(seen.needs_up_to + 1));
  }
  if (timing_ && timing_->is_steady()) {
    for (const LearnedTensor& seen : proposal_) {
      proposal.times.push_back(timing_->TimesOf(seen.tensor.name));
    }
    proposal.length_ns = timing_->length_ns();
    proposal.spread_ns = timing_->spread_ns();
  }
  if (is_timed()) proposal.samples = std::move(samples);
  Request request;
  request.name = fmt::format("lmdbio.plan.{}", epoch);
  request.operation = Operation::kAdoptPlan;
  request.extra = WriteProposal(proposal);
  return request;
}

// The merged numbers refer to positions, so the proposal must be the one of this rank, tensor by
// tensor. All ranks then build the same plan from the same list.
Result<TimedPlan> PlanLearner::Adopt(const Request& agreed) const {
  Result<PlanProposal> proposal = ReadProposal(agreed.extra);
  if (!proposal) return Fail(ErrorCode::kInternal, proposal.error().message());
  PlanProposal mine;
  mine.epoch = proposal->epoch;
  mine.digest = DigestOf(proposal_);
  mine.needs.resize(proposal_.size());
  if (const Status same = CheckSameProposal(mine, *proposal); !same) {
    return Fail(ErrorCode::kInternal,
                "the agreed plan is not the proposal of this rank: " + same.error().message());
  }
  std::vector<OrderedTensor> tensors(proposal_.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].tensor = proposal_[i].tensor;
    tensors[i].needs_up_to = int64_t{proposal->needs[i]} - 1;
  }
  if (!is_timed()) return TimedPlan{.plan = Plan::FromOrder(tensors, options_, proposal->epoch)};
  return MakeTimedPlan(tensors,
                       {.times = proposal->times,
                        .length_ns = proposal->length_ns,
                        .spread_ns = proposal->spread_ns,
                        .samples = proposal->samples},
                       options_, proposal->epoch);
}

bool PlanLearner::at_boundary() const {
  return proposal_.empty() ? iteration_.empty() : HoldsSame(proposal_);
}

// The program may submit a tensor again before the response to its first submission is reported
// here. So the oldest submission of the name belongs to this response.
void PlanLearner::DoneOne(const Request& tensor) {
  if (iteration_.size() >= kIterationTensorsMax) {
    previous_.clear();
    BeginIteration();
  }
  if (places_.contains(tensor.name)) CloseIteration();
  const int64_t done_at = done_count_++;
  Known& known = names_[tensor.name];
  known.done_at = done_at;
  int64_t needs_up_to = -1;
  if (!known.submissions.empty()) {
    // Without a known submission, this rank has joined, or it submitted before this learner was
    // reset. Then all its waits were for tensors of earlier iterations, so the need stays -1.
    const OpenSubmission submission = std::move(known.submissions.front());
    known.submissions.erase(known.submissions.begin());
    needs_up_to = NeedsOf(submission);
    for (const uint64_t wait : submission.waits) {
      waits_[wait - first_wait_].done_at = done_at;
    }
    SettleWaits();
  }
  places_.emplace(tensor.name, iteration_.size());
  iteration_.push_back({tensor, needs_up_to});
}

void PlanLearner::CloseIteration() {
  if (proposal_.empty()) LookForProposal();
  previous_ = std::move(iteration_);
  BeginIteration();
}

void PlanLearner::LookForProposal() {
  if (previous_.empty() || !HoldsSame(previous_)) {
    EndTiming();
    return;
  }
  ++repeated_count_;
  if (!is_timed() || repeated_count_ > kTimedIterations) {
    proposal_ = iteration_;
  } else if (!timing_) {
    BeginTiming();
  }
}

// Times are taken from the iteration on that follows the one which begins now. The submission of a
// tensor to the latter is its only one without a response, or its next one.
void PlanLearner::BeginTiming() {
  std::vector<std::string> names;
  std::vector<std::string> not_submitted;
  for (const LearnedTensor& seen : iteration_) {
    names.push_back(seen.tensor.name);
    const size_t open_count = names_[seen.tensor.name].submissions.size();
    if (open_count > 1) return;  // one of them is of a later iteration; try again
    if (open_count == 0) not_submitted.push_back(seen.tensor.name);
  }
  timing_.emplace(names);
  for (const std::string& name : not_submitted) timing_->SkipNext(name);
}

// Called after Forget, too, because then there is no iteration before.
void PlanLearner::EndTiming() {
  timing_.reset();
  repeated_count_ = 0;
}

void PlanLearner::BeginIteration() {
  iteration_.clear();
  places_.clear();
  begin_ = done_count_;
  // Settled waits are for tensors of earlier iterations, so they give no dependency from now on.
  waits_.erase(waits_.begin(), waits_.begin() + static_cast<ptrdiff_t>(settled_count_));
  first_wait_ += settled_count_;
  settled_count_ = 0;
  std::erase_if(names_, [](const auto& name) { return name.second.submissions.empty(); });
}

void PlanLearner::AddWait(Wait wait, OpenSubmission* submission) {
  // A wait that adds nothing to the waits before it is not stored.
  const bool is_all_settled = settled_count_ == waits_.size();
  if (submission == nullptr && is_all_settled && !waits_.empty() &&
      wait.done_at <= waits_.back().up_to) {
    return;
  }
  if (submission != nullptr) submission->waits.push_back(first_wait_ + waits_.size());
  waits_.push_back(wait);
  SettleWaits();
}

// Waits are numbered, and a submission records only the number of waits before it. For a settled
// wait `up_to` is the prefix maximum of done_at. So the dependency of a submission is one look-up:
// the last executed tensor among all waits before the submission. A wait before the OnDone of its
// tensor is open; it and all later waits are settled when that OnDone comes.
void PlanLearner::SettleWaits() {
  while (settled_count_ < waits_.size() && waits_[settled_count_].done_at >= 0) {
    Wait& wait = waits_[settled_count_];
    wait.up_to = settled_count_ == 0 ? wait.done_at
                                     : std::max(wait.done_at, waits_[settled_count_ - 1].up_to);
    ++settled_count_;
  }
}

int64_t PlanLearner::NeedsOf(const OpenSubmission& submission) const {
  if (submission.wait_count <= first_wait_) return -1;
  const size_t wait = submission.wait_count - first_wait_ - 1;
  // A wait that is still open cannot be attributed to one submission of its name. So assume that
  // this tensor needs everything executed before it. This tensor has the number done_count_ - 1.
  const int64_t up_to = wait < settled_count_ ? waits_[wait].up_to : done_count_ - 2;
  return std::max(up_to - begin_, int64_t{-1});
}

// In any order, because the order in which tensors become ready varies between iterations.
bool PlanLearner::HoldsSame(const std::vector<LearnedTensor>& other) const {
  return iteration_.size() == other.size() &&
         std::all_of(other.begin(), other.end(), [&](const LearnedTensor& seen) {
           const auto place = places_.find(seen.tensor.name);
           return place != places_.end() && iteration_[place->second].tensor == seen.tensor;
         });
}

uint64_t PlanLearner::DigestOf(const std::vector<LearnedTensor>& iteration) const {
  std::vector<uint64_t> numbers = {options_.fusion.threshold_bytes,
                                   options_.last_bucket_bytes,
                                   options_.num_groups,
                                   static_cast<uint64_t>(options_.group_by),
                                   static_cast<uint64_t>(options_.order),
                                   options_.batch_bytes,
                                   options_.batch_bytes_max};
  Response one;
  one.tensors.resize(1);
  for (const LearnedTensor& seen : iteration) {
    one.tensors[0] = seen.tensor;
    numbers.push_back(one.digest());
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof numbers[0]);
}

}  // namespace lmdbio::sync
