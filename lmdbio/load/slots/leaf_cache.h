// lmdbio/load/slots/leaf_cache.h - leaf pages that were read once and will be needed again.
//
// Shuffled records with large values lie on pages of their own, but their keys share leaf pages.
// Without the cache, each slot would read many of the same small pages again.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_
#define LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

// Keeps the first extents that it is given, until it is full. Threads: one at a time.
class LeafCache {
 public:
  static constexpr uint64_t kCapacityBytes = 8 << 20;
  static constexpr uint64_t kExtentBytesMax = 64 << 10;  // of adjacent leaf pages

  explicit LeafCache(uint64_t capacity_bytes = kCapacityBytes) : capacity_bytes_(capacity_bytes) {}

  bool Has(const Extent& file) const {
    const auto found = kept_.find(file.offset);
    return found != kept_.end() && found->second.length_bytes == file.length_bytes;
  }

  // Requires: Has(file). Lifetime: until the next Keep
  Bytes Get(const Extent& file) const {
    return Bytes(bytes_).subspan(kept_.at(file.offset).offset, file.length_bytes);
  }

  // Copies the extents that a plan found here (ReadPlan::had) to their offsets in `pages`.
  // Requires: Has of each of them
  void CopyTo(std::span<const PlannedExtent> had, MutableBytes pages) const {
    for (const PlannedExtent& leaf : had) {
      const Bytes bytes = Get(leaf.file);
      std::copy(bytes.begin(), bytes.end(), pages.begin() + static_cast<ptrdiff_t>(leaf.at));
    }
  }

  // Copies `bytes`, which were read from `file`. Does nothing for more than kExtentBytesMax, and if
  // there is no room.
  void Keep(const Extent& file, Bytes bytes) {
    if (bytes.size() > kExtentBytesMax || bytes_.size() + bytes.size() > capacity_bytes_) return;
    const auto [entry, is_new] = kept_.try_emplace(file.offset);
    if (!is_new) return;
    entry->second = {bytes_.size(), file.length_bytes};
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

 private:
  uint64_t capacity_bytes_;
  std::vector<std::byte> bytes_;
  std::unordered_map<uint64_t, Extent> kept_;  // by offset in the file: the extent of bytes_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_
