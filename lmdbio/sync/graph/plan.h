// lmdbio/sync/graph/plan.h - a fixed order and fusion of tensors, agreed on once.
//
// A plan is a list of buckets and a list of steps. A step is a collective call: for a bucket, or
// for a slice of its only tensor. Each rank fills the slots of a bucket when it submits their
// tensors. It makes the first step of the bucket when all slots are filled and all steps before it
// were made. So a plan needs no control messages, and every run sends the same messages with the
// same bits. A bucket may also be reduced in two halves, each with steps of its own.
//
// A plan is built from a graph (sync/graph/graph.h), or learned from iterations
// (sync/graph/plan_learner.h), or its steps are given.
//
// Source: dissertation 6.3.4, 8.3.5, figures 6.14 and 6.15; docs/coordinators.md "Plans". Slices:
// Hashemi et al. 4.4; docs/caramel.md "Steps".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_H_
#define LMDBIO_SYNC_GRAPH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/request/fusion.h"
#include "lmdbio/sync/request/request.h"
#include "lmdbio/sync/schedule/transfer_units.h"

namespace lmdbio::sync {

struct PlanOptions {
  FusionOptions fusion;
  // > 0: buckets shrink towards the end of an iteration, so that little is left to reduce when its
  // last tensor is ready: each has at most half of the bytes that are left, or this size. 0: all
  // buckets are as large as the threshold permits. Without effect with num_groups
  uint64_t last_bucket_bytes = 0;
  // > 0: a larger tensor that is alone in its bucket is cut into slices of this size, as by
  // SliceElementsOf. 0: no tensor is cut
  uint64_t slice_bytes = 0;
  // > 0: this many buckets, if dependencies and kinds permit, instead of the threshold (Romero et
  // al. 3.2)
  uint32_t num_groups = 0;
  // With num_groups, buckets have about as many bytes each, or as many tensors.
  enum class GroupBy : uint8_t { kBytes, kTensors };
  GroupBy group_by = GroupBy::kBytes;

  // Of plans by time (sync/graph/timed_plan.h); the others are in the order of arrival.
  enum class PlanOrder : uint8_t { kArrival, kDue, kBins, kSplit };
  PlanOrder order = PlanOrder::kArrival;
  uint64_t batch_bytes = 0;  // smaller tensors are batched up to this size; 0: the model decides
  uint64_t batch_bytes_max = FusionOptions().threshold_bytes;  // of a batch
};

struct Bucket {
  std::vector<Request> tensors;  // 1 or more; several only if they are kAllReduce and may be fused
};

// A collective call of a plan: for all of a bucket, or for a slice of its only tensor.
struct PlanStep {
  // A reduction, or a half of one: Collectives::ReduceToParts, GatherParts.
  enum class StepHalf : uint8_t { kBoth, kReduce, kGather };

  size_t bucket = 0;   // its number in the plan
  uint64_t begin = 0;  // the first element of the slice
  uint64_t count = 0;  // elements of the slice; 0: all of the bucket
  StepHalf half = StepHalf::kBoth;
  bool is_slice() const { return count > 0; }
  // Slices are in ascending order, so a rank needs the tensors of a bucket from this step on.
  bool begins_bucket() const { return begin == 0 && half != StepHalf::kGather; }
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

// The elements of each slice of a bucket, except for the last one. Slices are whole lines of 64
// bytes. They are larger than slice_bytes if there were more than kSlicesMax of them.
// Returns: 0  the bucket is not cut: it is no kAllReduce of one tensor on the host, or the tensor
//             is not larger than a slice, or slice_bytes is 0
uint64_t SliceElementsOf(const Bucket& bucket, uint64_t slice_bytes);

// Whether a bucket may be reduced in halves: it is a kAllReduce on the host.
bool MayHalve(const Bucket& bucket);

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
  // position. The steps are in the order of the buckets, and options.slice_bytes cuts large
  // tensors.
  // tensors  in the order of OrderTensors; only the request and needs_up_to of each are used
  // epoch    number of the plan in this run; the same on every rank
  // Requires: all names differ; needs_up_to of each tensor is smaller than its own position
  // Cost:     O(n log n) for n tensors
  static Plan FromOrder(const std::vector<OrderedTensor>& tensors, const PlanOptions& options,
                        uint64_t epoch);

  // A plan of these buckets and steps, in this order. Steps of several buckets may alternate.
  // buckets   no tensor may need one of its own bucket, or of a bucket whose last step comes after
  //           the first one of its own
  // Requires: all names differ; each bucket has one step for all of it, or slices that partition
  //           the elements of its only tensor in ascending order; only a kAllReduce of a tensor on
  //           the host has slices. Or it has such steps for each half, the same for both, and those
  //           that gather come after all that reduce; only kAllReduce on the host has halves
  // Cost:     O(n + s) for n tensors and s steps
  static Plan FromSteps(std::vector<Bucket> buckets, std::vector<PlanStep> steps, uint64_t epoch);

  uint64_t epoch() const { return epoch_; }
  const std::vector<Bucket>& buckets() const& { return buckets_; }
  const std::vector<Bucket>& buckets() && = delete;  // they end with the plan
  const std::vector<PlanStep>& steps() const& { return steps_; }
  const std::vector<PlanStep>& steps() && = delete;
  // Whether the bucket of the step is done after it.
  bool Completes(const PlanStep& step) const;
  // A digest of the whole plan and the epoch. Ranks with equal digests have equal plans.
  uint64_t digest() const { return digest_; }

 private:
  uint64_t epoch_ = 0;
  uint64_t digest_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<PlanStep> steps_;
};

// The progress through a plan, iteration after iteration. Pure.
//
// A rank can always make the steps of a bucket that was begun, because it has the tensors. So the
// ranks can abandon the plan only at a step that begins a bucket. Then they make the steps that are
// left of the buckets that were begun, and no other ones.
//
// Threads: one at a time.
class PlanProgress {
 public:
  explicit PlanProgress(Plan plan);

  const Plan& plan() const { return plan_; }

  // Fills the slot of a request. Returns false and changes nothing if the plan has no such tensor,
  // or a different one of that name, or if the slot is filled, or after TakePending. A tensor
  // belongs to the next iteration if its bucket was begun in this one, so a rank may be one
  // iteration ahead.
  bool Submit(const Request& request);

  // The step that all ranks make next, if this rank can make it: its bucket was begun, or all slots
  // of the bucket are filled. Otherwise null.
  // Lifetime: the result is valid as long as this
  const PlanStep* ReadyStep() const;
  // All ranks have made the step. Requires: ReadyStep is not null
  void Advance();
  // The number in the plan of the step that all ranks make next; the number of steps if none is
  // left after TakePending.
  size_t next_step() const { return next_step_; }
  // Whether that step begins a bucket: whether a rank may decline it.
  bool is_at_begin() const;

  // Whether slots are filled of a bucket that was not begun.
  bool has_pending() const { return pending_count_ > 0; }
  // Number of empty slots without which the next step cannot be made.
  size_t missing_count() const;

  // The plan is abandoned at the next step. Takes back the requests of the buckets that were not
  // begun, in the order of the plan, starting from the next step, once around. From now on the
  // steps are left that complete the buckets of begun_buckets(), in the order of the plan.
  std::vector<Request> TakePending();
  // The buckets that were begun in this iteration, in the order of the plan.
  const std::vector<size_t>& begun_buckets() const& { return begun_; }
  const std::vector<size_t>& begun_buckets() && = delete;

 private:
  struct PlanPosition {
    size_t bucket = 0;
    size_t slot = 0;
  };
  struct BucketFill {
    std::vector<uint8_t> are_taken;
    size_t taken_count = 0;
    bool is_open = false;  // begun, and not complete
  };
  void Clear(BucketFill& slots);
  void SkipToLeft();

  Plan plan_;
  std::unordered_map<std::string, PlanPosition> places_;
  // [buckets] slots of the next iteration if the bucket was begun in this one, else of this one
  std::vector<BucketFill> slots_;
  std::vector<size_t> begun_;  // in this iteration
  size_t next_step_ = 0;
  size_t pending_count_ = 0;
  bool is_abandoned_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_H_
