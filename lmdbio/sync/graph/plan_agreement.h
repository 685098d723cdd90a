// lmdbio/sync/graph/plan_agreement.h - how the ranks come to follow one plan.
//
// The ranks agree in rounds: a proposal is a request kAdoptPlan, and its response says that all
// ranks have proposed. The steps depend on the responses alone, so all ranks take them at the same
// place:
//
//   1. propose   after an iteration was learned, or at once for a given order
//   2. agreed    the response arrives
//   3. adopt     at the next boundary between two iterations
//   4. abandon   some rank could not follow: a pause of 2^n iterations, then step 1 again
//
// Source: dissertation 6.3.4; docs/coordinators.md "Plans".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_AGREEMENT_H_
#define LMDBIO_SYNC_GRAPH_PLAN_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/graph/plan_learner.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Pure: no thread, no clock, no message.
// Threads: one at a time.
class PlanAgreement {
 public:
  // After the n-th abandoned plan, 2^n iterations pass before the next proposal; at most 2^this.
  static constexpr uint64_t kPauseLogMax = 4;
  // An agreed plan is dropped and learned again if no boundary comes in this many lists of
  // responses: the program has changed.
  static constexpr uint64_t kAgreedAgeMax = 1000;

  enum class Source : uint8_t {
    kNone,           // no plan, unless FollowOrder gives one
    kLearned,        // from the first iterations
    kLearnedGroups,  // the same, and plans become tensor groups of a coordinator
  };
  PlanAgreement(const PlanOptions& options, Source source);

  // Plans of this order from now on, in place of learned ones. Returns the first proposal.
  // Requires: as Plan::FromOrder; no response so far
  Request FollowOrder(std::vector<OrderedTensor> order);

  bool makes_groups() const { return source_ == Source::kLearnedGroups; }
  // Whether OnSubmit and OnWaited are of use.
  bool is_learning() const { return learner_.has_value(); }
  const PlanOptions& options() const { return options_; }
  // Number of the last proposal.
  uint64_t epoch() const { return epoch_; }

  // As PlanLearner; without effect if nothing is learned.
  void OnSubmit(std::string_view name, int64_t program_ns);
  void OnWaited(std::string_view name, int64_t program_ns);

  // The response to the proposals, without an error.
  void OnAgreed(const Request& agreed);
  // All ranks have executed these responses: as PlanLearner::OnDone. After OnAgreed, if the
  // proposal is among them.
  void OnDone(const std::vector<Response>& responses);
  // Whether TakeProposal may need samples.
  bool needs_samples() const { return learner_ && learner_->has_proposal(); }
  // The next proposal, if one is due after the last OnDone.
  // samples  as PlanLearner::TakeProposal
  std::optional<Request> TakeProposal(std::vector<TransferSample> samples);
  // The plan to follow from now on, if the last OnDone ended at a boundary.
  // Errors: kInternal  as PlanLearner::Adopt; the next plan is learned anew
  Result<std::optional<TimedPlan>> TakePlan();

  // All ranks have abandoned the plan.
  // done  the buckets of the unfinished iteration that were reduced
  void OnAbandoned(std::span<const Response> done);

 private:
  Request ProposalOfOrder() const;
  bool is_at_boundary() const;
  void MarkDone(std::span<const Response> responses);

  PlanOptions options_;
  Source source_;
  std::optional<PlanLearner> learner_;           // none: nothing is learned
  std::vector<OrderedTensor> order_;             // of FollowOrder
  std::unordered_set<std::string> order_names_;  // of its tensors
  std::unordered_set<std::string> order_done_;   // of these in the present iteration
  uint64_t boundary_count_ = 0;                  // since the last plan was abandoned
  uint64_t abandoned_count_ = 0;
  uint64_t epoch_ = 0;             // of the last proposal
  std::optional<Request> agreed_;  // all ranks want this plan, from the next boundary on
  uint64_t agreed_age_ = 0;        // lists of responses since then
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_AGREEMENT_H_
