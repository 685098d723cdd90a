// lmdbio/sync/collective/even_sizes.h - divides a count evenly among ranks.
#ifndef LMDBIO_SYNC_COLLECTIVE_EVEN_SIZES_H_
#define LMDBIO_SYNC_COLLECTIVE_EVEN_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::sync {

// The sizes of the parts differ by one at most, and the first ones are larger.
// part_count  > 0
inline std::vector<uint64_t> EvenSizes(uint64_t count, int part_count) {
  const auto parts = static_cast<uint64_t>(part_count);
  std::vector<uint64_t> sizes(parts, count / parts);
  for (uint64_t i = 0; i < count % parts; ++i) ++sizes[i];
  return sizes;
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_EVEN_SIZES_H_
