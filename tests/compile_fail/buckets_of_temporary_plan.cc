// A loop over the buckets of a temporary plan reads freed memory.
#include "lmdbio/sync/graph/plan.h"

namespace lmdbio::sync {

size_t CountBuckets(const std::vector<OrderedTensor>& tensors) {
  size_t count = 0;
#ifdef LMDBIO_BAD
  for ([[maybe_unused]] const Bucket& bucket : Plan::FromOrder(tensors, {}, 1).buckets()) ++count;
#else
  const Plan plan = Plan::FromOrder(tensors, {}, 1);
  for ([[maybe_unused]] const Bucket& bucket : plan.buckets()) ++count;
#endif
  return count;
}

}  // namespace lmdbio::sync
