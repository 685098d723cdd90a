#include "lmdbio/sync/collective/collectives.h"

#include <algorithm>
#include <vector>

namespace lmdbio::sync {
namespace {

// Parts of nearly the same size.
struct EvenParts {
  EvenParts(uint64_t count, uint64_t unit, int rank, int rank_count)
      : sizes(static_cast<size_t>(rank_count)) {
    const auto parts = static_cast<uint64_t>(rank_count);
    for (uint64_t part = 0; part < parts; ++part) {
      sizes[part] = (count / parts + (part < count % parts ? 1 : 0)) * unit;
    }
    const auto own = static_cast<uint64_t>(rank);
    own_begin = (count / parts * own + std::min(own, count % parts)) * unit;
    own_size = sizes[own];
  }

  std::vector<uint64_t> sizes;  // [ranks]
  uint64_t own_begin;
  uint64_t own_size;
};

}  // namespace

Result<CallOutcome> Collectives::ReduceToParts(const CallTag& tag, const Values& values,
                                               const Reduction& reduction) {
  const EvenParts parts(values.count, 1, rank(), size());
  std::byte* const own = values.data + parts.own_begin * ElementBytes(values.type);
  return ReduceScatter(tag, values, own, parts.sizes, reduction);
}

Result<CallOutcome> Collectives::GatherParts(const CallTag& tag, const Values& values) {
  const uint64_t element_bytes = ElementBytes(values.type);
  const EvenParts parts(values.count, element_bytes, rank(), size());
  const MutableBytes all(values.data, values.count * element_bytes);
  return AllGather(tag, all.subspan(parts.own_begin, parts.own_size), all, parts.sizes);
}

}  // namespace lmdbio::sync
