// A loop over the blocks of a temporary plan reads freed memory: C++20 destroys the plan before the
// first step of the loop.
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

ReadPlan MakePlan();

uint64_t BytesOf() {
  uint64_t bytes = 0;
#ifdef LMDBIO_BAD
  for (const PlannedBlock& block : MakePlan().blocks()) bytes += block.file.length_bytes;
#else
  const ReadPlan plan = MakePlan();
  for (const PlannedBlock& block : plan.blocks()) bytes += block.file.length_bytes;
#endif
  return bytes;
}

}  // namespace lmdbio::load
