// lmdbio/sync/graph/plan.h - a fixed order and fusion of tensors, agreed on once.
//
// A plan is a list of buckets. Each rank fills the slots of a bucket when it submits their tensors.
// It sends the bucket when all slots are filled and all buckets before it were sent. So a plan
// needs no control messages, and every run sends the same messages with the same bits.
//
// A plan is built from a graph (sync/graph/graph.h), or learned from iterations (PlanLearner).
//
// Source: dissertation 6.3.4, 8.3.5, figures 6.14 and 6.15; docs/coordinators.md "Plans".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_H_
#define LMDBIO_SYNC_GRAPH_PLAN_H_

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
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/request/fusion.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

struct PlanOptions {
  FusionOptions fusion;
  // > 0: buckets shrink towards the end of an iteration, so that little is left to reduce when its
  // last tensor is ready: each has at most half of the bytes that are left, or this size. 0: all
  // buckets are as large as the threshold permits. Without effect with num_groups
  uint64_t last_bucket_bytes = 0;
  // > 0: this many buckets, if dependencies and kinds permit, instead of the threshold (Romero et
  // al. 3.2)
  uint32_t num_groups = 0;
  // With num_groups, buckets have about as many bytes each, or as many tensors.
  enum class GroupBy : uint8_t { kBytes, kTensors };
  GroupBy group_by = GroupBy::kBytes;
};

struct Bucket {
  std::vector<Request> tensors;  // 1 or more; several only if they are kAllReduce and may be fused
};

class Plan {
 public:
  // Builds a plan. The list is cut into segments. A segment ends before a tensor that needs one of
  // the segment, before a tensor that does not fit its bucket (whose size options.fusion and
  // options.last_bucket_bytes limit), and, with num_groups, when its share
  // of the bytes or tensors is reached. In a segment, tensors of one kind share a bucket, and
  // buckets are in the order of their first tensors. So no tensor needs another one of its own
  // bucket or of a later one. Ranks that send buckets in this order cannot deadlock
  // (docs/coordinators.md "Plans"). Tensors of one group stay together at the position of the first
  // of them, even above the threshold, except for a tensor that needs another one behind that
  // position.
  // tensors  in the order of OrderTensors; only the request and needs_up_to of each are used
  // epoch    number of the plan in this run; the same on every rank
  // Requires: all names differ; needs_up_to of each tensor is smaller than its own position
  // Cost:     O(n log n) for n tensors
  static Plan FromOrder(const std::vector<OrderedTensor>& tensors, const PlanOptions& options,
                        uint64_t epoch);

  uint64_t epoch() const { return epoch_; }
  const std::vector<Bucket>& buckets() const& { return buckets_; }
  const std::vector<Bucket>& buckets() && = delete;  // they end with the plan
  // A digest of the whole plan and the epoch. Ranks with equal digests have equal plans.
  uint64_t digest() const { return digest_; }

 private:
  uint64_t epoch_ = 0;
  uint64_t digest_ = 0;
  std::vector<Bucket> buckets_;
};

// The progress through a plan, iteration after iteration. Pure.
// Threads: one at a time.
class PlanProgress {
 public:
  explicit PlanProgress(Plan plan);

  const Plan& plan() const { return plan_; }

  // Fills the slot of a request. Returns false and changes nothing if the plan has no such tensor,
  // or a different one of that name, or if the slot is filled. A tensor belongs to the next
  // iteration if its bucket was already sent in this one, so a rank may be one iteration ahead.
  bool Submit(const Request& request);

  // The next bucket in order, if all its slots are filled; it counts as sent. Otherwise null.
  // Lifetime: the result is valid as long as the plan
  const Bucket* TakeReady();
  // The index of the bucket that the last TakeReady returned, or, if that was null, of the bucket
  // that all ranks send next.
  size_t next_bucket() const { return next_bucket_; }

  // Whether a bucket that was not sent has filled slots.
  bool has_pending() const { return pending_count_ > 0; }
  // Number of empty slots in the bucket that all ranks send next.
  size_t missing_count() const;

  // Takes back the requests that were not sent, in the order of the plan, starting from the bucket
  // that all ranks send next, once around.
  std::vector<Request> TakePending();

 private:
  struct PlanPosition {
    size_t bucket = 0;
    size_t slot = 0;
  };
  struct BucketFill {
    std::vector<uint8_t> are_taken;
    size_t taken_count = 0;
  };
  Plan plan_;
  std::unordered_map<std::string, PlanPosition> places_;
  // [buckets] of this iteration from unsent_bucket_ on, of the next one before it
  std::vector<BucketFill> slots_;
  size_t unsent_bucket_ = 0;  // the bucket that all ranks send next
  size_t next_bucket_ = 0;
  size_t pending_count_ = 0;
};

// Learns a plan from the responses of a coordinator. All ranks get the same responses, so they
// learn the same order. Dependencies differ: each rank observes its own waits, and sends them in
// its request to adopt the plan.
//
// An iteration is the sequence of responses until a name comes a second time. When two iterations
// in a row hold the same requests, the order of the second becomes the proposal. So a tensor that
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
  void OnSubmit(std::string_view name);
  // The program of this rank has waited for a tensor, or a query returned that it is done, or its
  // callback runs and is about to submit a tensor.
  void OnWaited(std::string_view name);
  // All ranks have executed these responses, fused or one by one: the same on every rank, in the
  // same order. kAdoptPlan is ignored. A response that no plan can hold starts a new iteration on
  // every rank: an error, a join, a kAllToAll, a kAllGather with unequal rows.
  void OnDone(const std::vector<Response>& responses);
  // Starts to learn anew; another proposal may follow. Used after a plan was abandoned, for
  // example.
  // Requires:   all responses so far were reported; no proposal is in progress
  // Collective: every rank calls it after the same response
  void Forget();

  // The request to adopt a plan, once until Forget, after an iteration was learned. All ranks get
  // it after the same responses.
  // epoch  of the new plan
  std::optional<Request> TakeProposal(uint64_t epoch);
  // The plan that all ranks adopt.
  // agreed  the response to the proposals, with merged dependencies
  // Errors: kInternal  the bytes are not a proposal for the iteration of this rank
  Result<Plan> Adopt(const Request& agreed) const;

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

  std::unordered_map<std::string, Known> names_;
  std::deque<Wait> waits_;
  uint64_t first_wait_ = 0;   // the number of waits_.front()
  size_t settled_count_ = 0;  // waits at the front whose up_to is known
};

// Merges the proposals of two ranks (bytes of Request::extra): each tensor needs the larger of the
// two needs_up_to. The operation is associative and commutative.
// Errors: kInvalidArgument  malformed bytes, or proposals of different plans; names the difference
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_H_
