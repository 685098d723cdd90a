#include "lmdbio/sync/graph/plan_agreement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

PlanAgreement::PlanAgreement(const PlanOptions& options, Source source)
    : options_(options), source_(source) {
  if (source != Source::kNone) learner_.emplace(options);
}

Request PlanAgreement::FollowOrder(std::vector<OrderedTensor> order) {
  learner_.reset();
  for (const OrderedTensor& one : order) order_names_.insert(one.tensor.name);
  order_ = std::move(order);
  epoch_ = 1;
  return ProposalOfOrder();
}

// The digest travels as `extra` of a request, so rank 0 compares the plans of all ranks as it
// compares any other request.
Request PlanAgreement::ProposalOfOrder() const {
  const uint64_t digest = Plan::FromOrder(order_, options_, epoch_).digest();
  Request request;
  request.name = fmt::format("lmdbio.plan.{}", epoch_);
  request.operation = Operation::kAdoptPlan;
  const Bytes bytes = std::as_bytes(std::span(&digest, 1));
  request.extra.assign(bytes.begin(), bytes.end());
  return request;
}

void PlanAgreement::OnSubmit(std::string_view name, int64_t program_ns) {
  if (learner_) learner_->OnSubmit(name, program_ns);
}

void PlanAgreement::OnWaited(std::string_view name, int64_t program_ns) {
  if (learner_) learner_->OnWaited(name, program_ns);
}

void PlanAgreement::OnAgreed(const Request& agreed) {
  agreed_ = agreed;
  agreed_age_ = 0;
}

void PlanAgreement::MarkDone(std::span<const Response> responses) {
  for (const Response& response : responses) {
    for (const Request& tensor : response.tensors) {
      if (order_names_.count(tensor.name) > 0) order_done_.insert(tensor.name);
    }
  }
}

void PlanAgreement::OnDone(const std::vector<Response>& responses) {
  if (learner_) {
    learner_->OnDone(responses);
  } else {
    MarkDone(responses);
    // An iteration ends when each tensor of the order was done. An empty set means a boundary.
    if (order_done_.size() == order_names_.size()) order_done_.clear();
  }
  if (is_at_boundary()) ++boundary_count_;
}

bool PlanAgreement::is_at_boundary() const {
  if (learner_) return learner_->at_boundary();
  return !order_.empty() && order_done_.empty();
}

// Each change between rounds and a plan costs time. So the pause before the next proposal doubles
// with each abandoned plan, up to 2^kPauseLogMax boundaries. Boundaries follow from the responses,
// so all ranks propose after the same list.
std::optional<Request> PlanAgreement::TakeProposal(std::vector<TransferSample> samples) {
  const uint64_t pause_log = std::min(abandoned_count_, kPauseLogMax);
  if (pause_log > 0 && boundary_count_ < uint64_t{1} << pause_log) return std::nullopt;
  if (learner_) {
    std::optional<Request> proposal = learner_->TakeProposal(epoch_ + 1, std::move(samples));
    if (proposal) ++epoch_;
    return proposal;
  }
  // FollowOrder returned the first proposal. Each abandoned plan permits one more.
  if (order_.empty() || epoch_ > abandoned_count_) return std::nullopt;
  ++epoch_;
  return ProposalOfOrder();
}

Result<std::optional<TimedPlan>> PlanAgreement::TakePlan() {
  if (!agreed_) return std::optional<TimedPlan>();
  if (!is_at_boundary()) {
    // A given order waits for its boundary for ever. A learned one is dropped, because the program
    // may never repeat the iteration that was learned.
    if (++agreed_age_ < kAgreedAgeMax || !learner_) return std::optional<TimedPlan>();
    agreed_.reset();
    learner_->Forget();
    return std::optional<TimedPlan>();
  }
  const Request agreed = *std::exchange(agreed_, std::nullopt);
  if (!learner_) {
    return std::optional(TimedPlan{.plan = Plan::FromOrder(order_, options_, epoch_)});
  }
  Result<TimedPlan> plan = learner_->Adopt(agreed);
  if (!plan) {
    learner_->Forget();
    return Fail(std::move(plan).error());
  }
  return std::optional(std::move(*plan));
}

// With a given order, the buckets that were done belong to the iteration in progress. Its boundary
// comes when rounds have done the rest.
void PlanAgreement::OnAbandoned(std::span<const Response> done) {
  ++abandoned_count_;
  boundary_count_ = 0;
  order_done_.clear();
  if (learner_) {
    learner_->Forget();
  } else {
    MarkDone(done);
  }
}

}  // namespace lmdbio::sync
