// lmdbio/control/plan.h - an order and a fusion that were agreed upon once and need no talk again.
//
// A plan is a list of buckets. Each rank fills the slots of a bucket as its tensors come, and sends
// it when all are there and all buckets before it have been sent: no control traffic, and the same
// messages with the same bits in every run.
//
// It comes from a graph (control/graph.h), or from what was done in one iteration (PlanLearner).
//
// Source: dissertation 6.3.4, 8.3.5, figures 6.14 and 6.15; docs/sync.md "Plans".
#ifndef LMDBIO_CONTROL_PLAN_H_
#define LMDBIO_CONTROL_PLAN_H_

#include <cstdint>
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
                            // types allow it, in place of the threshold (Romero et al. 3.2)
};

struct Bucket {
  std::vector<Request> tensors;  // 1 or more; several only if they are kAllReduce and may be fused
};

class Plan {
 public:
  // Tensors of different levels never share a bucket.
  // tensors  in order, as OrderTensors gives them
  // epoch    which plan of a run this is; every rank counts alike
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
  // this iteration belongs to the next one.
  bool Submit(const Request& request);

  // The next bucket in order, if all of its slots are taken; it counts as sent.
  const Bucket* TakeReady();
  // The number of that bucket in the plan: of the one that TakeReady gave last, or, while none is
  // ready, of the one that all ranks send next.
  size_t next_bucket() const { return next_bucket_; }

  // Whether some slots are taken whose bucket has not been sent.
  bool has_pending() const { return pending_count_ > 0; }
  // What the next bucket still lacks.
  std::vector<std::string> MissingNames() const;

  // Takes back what has not been sent, in the order of the plan.
  std::vector<Request> TakePending();

 private:
  struct Place {
    size_t bucket = 0;
    size_t slot = 0;
  };
  Plan plan_;
  std::unordered_map<std::string, Place> places_;
  // Slots of this iteration and of the next: a rank may be ahead of the collective by one.
  std::vector<std::vector<uint8_t>> taken_;
  std::vector<size_t> taken_count_;  // [buckets]
  size_t next_bucket_ = 0;
  size_t pending_count_ = 0;
};

// Learns a plan from what a coordinator lets the ranks do. All ranks see the same responses, so
// they learn the same order; what depended on what, each rank sees for itself, and tells the others
// in its request to adopt the plan.
//
// An iteration is what is done until a name comes a second time. A tensor that was submitted, on
// some rank, after that rank had waited for another one is taken to need that one.
// Threads: one at a time.
class PlanLearner {
 public:
  explicit PlanLearner(PlanOptions options) : options_(options) {}

  // This rank submits a tensor.
  void OnSubmit(std::string_view name);
  // This rank's program has waited for a tensor, or asked whether it is done and heard that it is.
  void OnWaited(std::string_view name);
  // All ranks have done these.
  void OnDone(const std::vector<Response>& responses);
  // Something came in between that no plan can hold: the iteration begins anew.
  void Forget();

  // Once an iteration is known that a plan can follow: the request that says so, once.
  // epoch  of the plan to be
  std::optional<Request> TakeProposal(uint64_t epoch);
  // The plan that all ranks adopt.
  // agreed  the response to the proposals: their dependencies joined
  // Errors: kInternal  the bytes are no proposal of this rank's iteration
  Result<Plan> Adopt(const Request& agreed) const;

  // Whether all that was begun of the iteration has been done: the place to change to a plan.
  bool at_boundary() const;

 private:
  PlanOptions options_;
  // The rest is the implementation's.
  struct Seen {
    Request tensor;
    bool is_cut = false;  // depends on what came before it
  };
  std::vector<Seen> iteration_;
};

// How the proposals of two ranks become one: bytes of Request::extra.
// Errors: kInvalidArgument  they are proposals of different plans
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_PLAN_H_
