// A loop over the buckets that a temporary progress has begun reads freed memory.
#include "lmdbio/sync/graph/plan.h"

namespace lmdbio::sync {

size_t CountBegun(const Plan& plan) {
  size_t count = 0;
#ifdef LMDBIO_BAD
  for ([[maybe_unused]] const size_t bucket : PlanProgress(plan).begun_buckets()) ++count;
#else
  const PlanProgress progress(plan);
  for ([[maybe_unused]] const size_t bucket : progress.begun_buckets()) ++count;
#endif
  return count;
}

}  // namespace lmdbio::sync
