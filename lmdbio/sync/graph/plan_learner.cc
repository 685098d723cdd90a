#include "lmdbio/sync/graph/plan_learner.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

namespace lmdbio::sync {
namespace {

// The largest iteration. A program with a new name for every tensor never ends an iteration, so the
// learner starts anew at this limit.
constexpr size_t kIterationTensorsMax = 1 << 16;

// The bytes of a proposal, little-endian. docs/coordinators.md "Learning" has the table.
constexpr uint32_t kProposalVersion = 1;
constexpr size_t kVersionBytes = 4;
constexpr size_t kHeadBytes = 24;
constexpr size_t kNeedBytes = 4;

void Put(std::vector<std::byte>& bytes, uint64_t number, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes; ++i)
    bytes.push_back(static_cast<std::byte>(number >> (8 * i)));
}

uint64_t Get(Bytes bytes, size_t offset, size_t size_bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < size_bytes; ++i) {
    number |= std::to_integer<uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return number;
}

struct Proposal {
  uint64_t epoch = 0;
  uint64_t digest = 0;
  std::vector<uint32_t> needs;  // [tensors] needs_up_to + 1
};

std::vector<std::byte> Write(const Proposal& proposal) {
  std::vector<std::byte> bytes;
  bytes.reserve(kHeadBytes + kNeedBytes * proposal.needs.size());
  Put(bytes, kProposalVersion, 4);
  Put(bytes, proposal.needs.size(), 4);
  Put(bytes, proposal.epoch, 8);
  Put(bytes, proposal.digest, 8);
  for (const uint32_t need : proposal.needs) Put(bytes, need, kNeedBytes);
  return bytes;
}

Result<Proposal> Read(Bytes bytes) {
  const uint64_t version = bytes.size() < kVersionBytes ? 0 : Get(bytes, 0, kVersionBytes);
  if (version != kProposalVersion) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposal: {} bytes of version {}; expected version {}",
                            bytes.size(), version, kProposalVersion));
  }
  const uint64_t count = bytes.size() < kHeadBytes ? 0 : Get(bytes, 4, 4);
  if (bytes.size() != kHeadBytes + kNeedBytes * count) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("plan proposal: {} bytes do not match {} tensors", bytes.size(), count));
  }
  Proposal proposal{Get(bytes, 8, 8), Get(bytes, 16, 8), std::vector<uint32_t>(count)};
  for (size_t i = 0; i < count; ++i) {
    const auto need = static_cast<uint32_t>(Get(bytes, kHeadBytes + kNeedBytes * i, kNeedBytes));
    // Plan::FromOrder requires this of its caller, and the bytes may be from a peer.
    if (need > i) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("plan proposal: tensor {} needs {}, which is not before it", i,
                              uint64_t{need} - 1));
    }
    proposal.needs[i] = need;
  }
  return proposal;
}

// Errors: kInvalidArgument  proposals of different plans; names the difference
Status CheckSame(const Proposal& a, const Proposal& b) {
  if (a.epoch != b.epoch) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposals differ: epochs {} and {}", a.epoch, b.epoch));
  }
  if (a.needs.size() != b.needs.size()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("plan proposals differ: {} and {} tensors",
                                                         a.needs.size(), b.needs.size()));
  }
  if (a.digest != b.digest) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("plan proposals differ: tensors or options with digests {:016x} and {:016x}",
                    a.digest, b.digest));
  }
  return {};
}

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
void PlanLearner::OnSubmit(std::string_view name) {
  names_[std::string(name)].submissions.push_back({first_wait_ + waits_.size(), {}});
}

// The wait is for the last submission of the name. If that is not done, DoneOne fills in its
// number. If it was done in this iteration, its number is known now. A wait for a tensor of an
// older iteration is no dependency.
void PlanLearner::OnWaited(std::string_view name) {
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

std::optional<Request> PlanLearner::TakeProposal(uint64_t epoch) {
  if (proposal_.empty() || is_proposal_taken_) return std::nullopt;
  is_proposal_taken_ = true;
  Proposal proposal{epoch, DigestOf(proposal_), {}};
  proposal.needs.reserve(proposal_.size());
  for (const LearnedTensor& seen : proposal_) {
    proposal.needs.push_back(static_cast<uint32_t>(seen.needs_up_to + 1));
  }
  Request request;
  request.name = fmt::format("lmdbio.plan.{}", epoch);
  request.operation = Operation::kAdoptPlan;
  request.extra = Write(proposal);
  return request;
}

// The merged numbers refer to positions, so the proposal must be the one of this rank, tensor by
// tensor. All ranks then build the same plan from the same list.
Result<Plan> PlanLearner::Adopt(const Request& agreed) const {
  Result<Proposal> proposal = Read(agreed.extra);
  if (!proposal) return Fail(ErrorCode::kInternal, proposal.error().message());
  Proposal mine{proposal->epoch, DigestOf(proposal_), std::vector<uint32_t>(proposal_.size())};
  if (const Status same = CheckSame(mine, *proposal); !same) {
    return Fail(ErrorCode::kInternal,
                "the agreed plan is not the proposal of this rank: " + same.error().message());
  }
  std::vector<OrderedTensor> tensors(proposal_.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].tensor = proposal_[i].tensor;
    tensors[i].needs_up_to = int64_t{proposal->needs[i]} - 1;
  }
  return Plan::FromOrder(tensors, options_, proposal->epoch);
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
  if (proposal_.empty() && !previous_.empty() && HoldsSame(previous_)) proposal_ = iteration_;
  previous_ = std::move(iteration_);
  BeginIteration();
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
  std::vector<uint64_t> numbers = {options_.fusion.threshold_bytes, options_.last_bucket_bytes,
                                   options_.num_groups, static_cast<uint64_t>(options_.group_by)};
  Response one;
  one.tensors.resize(1);
  for (const LearnedTensor& seen : iteration) {
    one.tensors[0] = seen.tensor;
    numbers.push_back(one.digest());
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof numbers[0]);
}

// A tensor must wait for every dependency that some rank has observed. The maximum covers all of
// them, because the plan puts the tensor behind every position up to that number.
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b) {
  LMDBIO_TRY(Proposal merged, Read(a));
  LMDBIO_TRY(const Proposal other, Read(b));
  LMDBIO_TRY_VOID(CheckSame(merged, other));
  for (size_t i = 0; i < merged.needs.size(); ++i) {
    merged.needs[i] = std::max(merged.needs[i], other.needs[i]);
  }
  return Write(merged);
}

}  // namespace lmdbio::sync
