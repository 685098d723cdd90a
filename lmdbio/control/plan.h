// lmdbio/control/plan.h - an order and a fusion that were agreed upon once and need no talk again.
//
// A plan is a list of buckets. Each rank fills the slots of a bucket as its tensors come, and sends
// it when all are there and all buckets before it have been sent: no control traffic, and the same
// messages with the same bits in every run.
//
// It comes from a graph (control/graph.h), or from what was done in iterations (PlanLearner).
//
// Source: dissertation 6.3.4, 8.3.5, figures 6.14 and 6.15; docs/coordinators.md "Plans".
#ifndef LMDBIO_CONTROL_PLAN_H_
#define LMDBIO_CONTROL_PLAN_H_

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
#include "lmdbio/control/fusion.h"
#include "lmdbio/control/graph.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

struct PlanOptions {
  FusionOptions fusion;
  uint32_t num_groups = 0;  // > 0: this many buckets of about equal bytes, where dependencies and
                            // kinds allow it, in place of the threshold (Romero et al. 3.2)
};

struct Bucket {
  std::vector<Request> tensors;  // 1 or more; several only if they are kAllReduce and may be fused
};

class Plan {
 public:
  // Cuts the list into stretches. A stretch ends before a tensor that needs one of it, before one
  // that finds no room, and, with num_groups, where its share of the bytes is reached. In a stretch
  // tensors of one kind share a bucket; buckets stand in the order of their first tensors.
  // So no tensor needs another one of its own bucket or of a later one: ranks that send buckets in
  // this order never wait for each other for ever (docs/coordinators.md "Plans").
  // Tensors of one group stand together where the first of them stood, however large, unless one of
  // them needs what does not come before that place.
  // tensors  in order, as OrderTensors gives them: of each tensor the request and needs_up_to count
  // epoch    which plan of a run this is; every rank counts alike
  // Requires: no name comes twice; needs_up_to of each is smaller than its own place
  // Cost: O(n log n) for n tensors
  static Plan FromOrder(const std::vector<OrderedTensor>& tensors, const PlanOptions& options,
                        uint64_t epoch);

  uint64_t epoch() const { return epoch_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Of everything, the epoch included: ranks with equal digests have equal plans.
  uint64_t digest() const { return digest_; }

 private:
  uint64_t epoch_ = 0;
  uint64_t digest_ = 0;
  std::vector<Bucket> buckets_;
};

// Walks through a plan, iteration after iteration. Pure.
// Threads: one at a time.
class PlanWalk {
 public:
  explicit PlanWalk(Plan plan);

  const Plan& plan() const { return plan_; }

  // Puts a request into its slot. False if it has none: the plan has no such tensor, or another one
  // of that name, or the slot is taken; then nothing changes. A tensor whose bucket was taken in
  // this iteration belongs to the next one: a rank may be ahead of the collectives by one.
  bool Submit(const Request& request);

  // The next bucket in order, if all of its slots are taken; it counts as sent.
  // Lifetime: of the result: the plan's
  const Bucket* TakeReady();
  // The number of that bucket in the plan: of the one that TakeReady gave last, or, where it gave
  // none, of the one that all ranks send next.
  size_t next_bucket() const { return next_bucket_; }

  // Whether some slots are taken whose bucket has not been sent.
  bool has_pending() const { return pending_count_ > 0; }
  // Of how many tensors the bucket that all ranks send next still lacks.
  size_t missing_count() const;

  // Takes back what has not been sent, in the order of the plan, from the bucket that all ranks
  // send next and once around.
  std::vector<Request> TakePending();

 private:
  struct Place {
    size_t bucket = 0;
    size_t slot = 0;
  };
  struct Slots {
    std::vector<uint8_t> are_taken;
    size_t taken_count = 0;
  };
  Plan plan_;
  std::unordered_map<std::string, Place> places_;
  // [buckets] of this iteration from unsent_bucket_ on, of the next one before it
  std::vector<Slots> slots_;
  size_t unsent_bucket_ = 0;  // that all ranks send next
  size_t next_bucket_ = 0;
  size_t pending_count_ = 0;
};

// Learns a plan from what a coordinator lets the ranks do. All ranks see the same responses, so
// they learn the same order; what depended on what, each rank sees for itself, and tells the others
// in its request to adopt the plan.
//
// An iteration is what is done until a name comes a second time. Once two of them in a row held the
// same requests, the second one's order becomes the proposal: what is done only once, at the
// beginning, is in no plan. A tensor that was submitted, on some rank, after that rank had waited
// for another one of its iteration, is taken to need that one.
//
// The calls come in the order in which this rank's program and the responses made things happen;
// only OnDone may be late: a wait for a tensor, and the next submission of it, may come before it.
// What goes through a plan is not told; Forget comes before something is told again.
// Threads: one at a time.
class PlanLearner {
 public:
  explicit PlanLearner(PlanOptions options) : options_(options) {}

  // This rank submits a tensor.
  void OnSubmit(std::string_view name);
  // This rank's program has waited for a tensor, asked whether it is done and heard that it is, or
  // is in its callback and about to submit something there.
  void OnWaited(std::string_view name);
  // All ranks have done these, fused or one by one: the same on every rank, in the same order.
  // Passes over kAdoptPlan. What no plan can hold lets the iteration begin anew, on every rank
  // alike: an error, a join, an exchange of pieces, a gathering of unequal ones.
  void OnDone(const std::vector<Response>& responses);
  // All is learned anew, and another proposal may come: after a plan has ended, for instance.
  // Requires: every rank does the same at the same place of the responses, all of which have been
  //           told here; no proposal is under way
  void Forget();

  // Once an iteration is known that a plan can follow: the request that says so, once until Forget.
  // All ranks have it after the same responses.
  // epoch  of the plan to be
  std::optional<Request> TakeProposal(uint64_t epoch);
  // The plan that all ranks adopt.
  // agreed  the response to the proposals: their dependencies joined
  // Errors: kInternal  the bytes are no proposal of this rank's iteration
  Result<Plan> Adopt(const Request& agreed) const;

  // Whether just what the proposal holds has been done since the iteration began: the place to
  // change to the plan. Depends on the responses alone, so it is the same place on every rank.
  // Before there is a proposal: whether nothing has been done.
  bool at_boundary() const;

 private:
  // A tensor of an iteration.
  struct Seen {
    Request tensor;
    int64_t needs_up_to = -1;  // place in the iteration; -1: none
  };
  // A submission of this rank that has not been done.
  struct Submission {
    uint64_t wait_count = 0;      // waits before it
    std::vector<uint64_t> waits;  // for it that have come before OnDone: their numbers
  };
  // What is known of a name here.
  struct Known {
    std::vector<Submission> submissions;  // oldest first
    int64_t done_at = -1;                 // -1: not yet
  };
  // What this rank's program has waited for.
  struct Wait {
    int64_t done_at = -1;  // -1: OnDone has not come yet
    int64_t up_to = -1;    // the largest done_at of all waits up to this one, where all are known
  };

  void DoneOne(const Request& tensor);
  void BeginIteration();
  void CloseIteration();
  void AddWait(Wait wait, Submission* submission);
  void SettleWaits();
  int64_t NeedsOf(const Submission& submission) const;
  bool HoldsSame(const std::vector<Seen>& other) const;
  uint64_t DigestOf(const std::vector<Seen>& iteration) const;

  PlanOptions options_;
  // Every tensor that is done gets the next number: iteration_[i] has begin_ + i.
  int64_t done_count_ = 0;
  int64_t begin_ = 0;
  std::vector<Seen> iteration_;
  std::unordered_map<std::string, size_t> places_;  // in iteration_
  std::vector<Seen> previous_;                      // the iteration before it; empty: none to go by
  std::vector<Seen> proposal_;                      // empty: none yet
  bool is_proposal_taken_ = false;

  std::unordered_map<std::string, Known> names_;
  std::deque<Wait> waits_;
  uint64_t first_wait_ = 0;   // the number of waits_.front()
  size_t settled_count_ = 0;  // waits at the front whose up_to is known
};

// How the proposals of two ranks become one: bytes of Request::extra. In any order and grouping.
// Errors: kInvalidArgument  they are proposals of different plans, or none; says what differs
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_PLAN_H_
