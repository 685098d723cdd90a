// lmdbio/sync/graph/plan_learner.h - learns a plan from iterations.
//
// Source: dissertation 6.3.4, figure 6.15; docs/coordinators.md "Learning".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_LEARNER_H_
#define LMDBIO_SYNC_GRAPH_PLAN_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/graph/named_times.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/graph/timed_plan.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Learns a plan from the responses of a coordinator. All ranks get the same responses, so they
// learn the same order. Dependencies differ: each rank observes its own waits, and sends them in
// its request to adopt the plan.
//
// An iteration is the sequence of responses until a name comes a second time. When two iterations
// in a row hold the same requests, the order of the second becomes the proposal. A plan by time is
// proposed some iterations later, when their times are known. So a tensor that
// occurs once, at the beginning, is in no plan. A tensor is assumed to need another one of its
// iteration if some rank submitted it after a wait for the other one.
//
// Requires: the calls come in the order of the events on this rank. Only OnDone may be late: a wait
//           for a tensor, and its next submission, may come before it. Events while a plan is
//           followed are not reported; Forget comes before the next report
// Threads:  one at a time
class PlanLearner {
 public:
  explicit PlanLearner(PlanOptions options) : options_(options) {}

  // This rank submits a tensor.
  // program_ns  by the program clock (sync/schedule/program_clock.h); not less than before
  void OnSubmit(std::string_view name, int64_t program_ns);
  // The program of this rank has waited for a tensor, or a query returned that it is done, or its
  // callback runs and is about to submit a tensor.
  // program_ns  of the begin of the wait
  void OnWaited(std::string_view name, int64_t program_ns);
  // All ranks have executed these responses, fused or one by one: the same on every rank, in the
  // same order. kAdoptPlan is ignored. A response that no plan can hold starts a new iteration on
  // every rank: an error, a join, a kAllToAll, a kAllGather with unequal rows.
  void OnDone(const std::vector<Response>& responses);
  // Starts to learn anew; another proposal may follow. Used after a plan was abandoned, for
  // example.
  // Requires:   all responses so far were reported; no proposal is in progress
  // Collective: every rank calls it after the same response
  void Forget();

  // Whether TakeProposal returns one.
  bool has_proposal() const { return !proposal_.empty() && !is_proposal_taken_; }
  // The request to adopt a plan, once until Forget, after an iteration was learned. All ranks get
  // it after the same responses.
  // epoch    of the new plan
  // samples  times of calls, for a plan by time; of rank 0, and empty on the others
  std::optional<Request> TakeProposal(uint64_t epoch, std::vector<TransferSample> samples);
  // The plan that all ranks adopt.
  // agreed  the response to the proposals, with merged dependencies
  // Errors: kInternal  the bytes are not a proposal for the iteration of this rank
  Result<TimedPlan> Adopt(const Request& agreed) const;

  // Whether the present iteration holds exactly the tensors of the proposal. This is the point to
  // change to the plan. It depends on the responses alone, so it is the same on every rank. Without
  // a proposal: whether the iteration is empty.
  bool at_boundary() const;

 private:
  // A tensor of an iteration.
  struct LearnedTensor {
    Request tensor;
    int64_t needs_up_to = -1;  // position in the iteration; -1: none
  };
  // A submission of this rank before its OnDone.
  struct OpenSubmission {
    uint64_t wait_count = 0;      // number of waits before it
    std::vector<uint64_t> waits;  // the numbers of waits for it that came before its OnDone
  };
  // The state of a name on this rank.
  struct Known {
    std::vector<OpenSubmission> submissions;  // oldest first
    int64_t done_at = -1;                     // -1: not yet
  };
  // A wait of this rank's program.
  struct Wait {
    int64_t done_at = -1;  // number of the tensor; -1: its OnDone has not come yet
    int64_t up_to = -1;    // the largest done_at of all waits up to this one, if all are known
  };

  void DoneOne(const Request& tensor);
  void BeginIteration();
  void CloseIteration();
  void LookForProposal();
  void BeginTiming();
  void EndTiming();
  bool is_timed() const { return options_.order != PlanOptions::PlanOrder::kArrival; }
  void AddWait(Wait wait, OpenSubmission* submission);
  void SettleWaits();
  int64_t NeedsOf(const OpenSubmission& submission) const;
  bool HoldsSame(const std::vector<LearnedTensor>& other) const;
  uint64_t DigestOf(const std::vector<LearnedTensor>& iteration) const;

  PlanOptions options_;
  // Executed tensors are numbered: iteration_[i] has the number begin_ + i.
  int64_t done_count_ = 0;
  int64_t begin_ = 0;
  std::vector<LearnedTensor> iteration_;
  std::unordered_map<std::string, size_t> places_;  // in iteration_
  std::vector<LearnedTensor> previous_;             // the iteration before it; empty: unknown
  std::vector<LearnedTensor> proposal_;             // empty: none yet
  bool is_proposal_taken_ = false;
  uint64_t repeated_count_ = 0;       // iterations in a row that were like the one before
  std::optional<NamedTimes> timing_;  // of plans by time; none: no iteration was repeated yet

  std::unordered_map<std::string, Known> names_;
  std::deque<Wait> waits_;
  uint64_t first_wait_ = 0;   // the number of waits_.front()
  size_t settled_count_ = 0;  // waits at the front whose up_to is known
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_LEARNER_H_
