// lmdbio/sync/graph/plan.h - a fixed order and fusion of tensors, agreed on once.
//
// A plan is a list of buckets. Each rank fills the slots of a bucket when it submits their tensors.
// It sends the bucket when all slots are filled and all buckets before it were sent. So a plan
// needs no control messages, and every run sends the same messages with the same bits.
//
// A plan is built from a graph (sync/graph/graph.h), or learned from iterations
// (sync/graph/plan_learner.h).
//
// Source: dissertation 6.3.4, 8.3.5, figures 6.14 and 6.15; docs/coordinators.md "Plans".
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

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_H_
