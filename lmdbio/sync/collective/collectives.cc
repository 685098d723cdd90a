#include "lmdbio/sync/collective/collectives.h"

#include <numeric>
#include <vector>

#include "lmdbio/sync/collective/even_sizes.h"

namespace lmdbio::sync {
namespace {

uint64_t SumBefore(const std::vector<uint64_t>& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, uint64_t{0});
}

}  // namespace

Result<CallOutcome> Collectives::ReduceToParts(const CallTag& tag, const Values& values,
                                               const Reduction& reduction) {
  const std::vector<uint64_t> counts = EvenSizes(values.count, size());
  std::byte* const own = values.data + SumBefore(counts, rank()) * ElementBytes(values.type);
  return ReduceScatter(tag, values, own, counts, reduction);
}

Result<CallOutcome> Collectives::GatherParts(const CallTag& tag, const Values& values) {
  const uint64_t element_bytes = ElementBytes(values.type);
  std::vector<uint64_t> part_bytes = EvenSizes(values.count, size());
  for (uint64_t& bytes : part_bytes) bytes *= element_bytes;
  const MutableBytes all(values.data, values.count * element_bytes);
  const MutableBytes own =
      all.subspan(SumBefore(part_bytes, rank()), part_bytes[static_cast<size_t>(rank())]);
  return AllGather(tag, own, all, part_bytes);
}

}  // namespace lmdbio::sync
