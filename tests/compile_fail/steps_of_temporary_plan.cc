// A loop over the steps of a temporary plan reads freed memory.
#include "lmdbio/sync/graph/plan.h"

namespace lmdbio::sync {

size_t CountSteps(const std::vector<OrderedTensor>& tensors) {
  size_t count = 0;
#ifdef LMDBIO_BAD
  for ([[maybe_unused]] const PlanStep& step : Plan::FromOrder(tensors, {}, 1).steps()) ++count;
#else
  const Plan plan = Plan::FromOrder(tensors, {}, 1);
  for ([[maybe_unused]] const PlanStep& step : plan.steps()) ++count;
#endif
  return count;
}

}  // namespace lmdbio::sync
