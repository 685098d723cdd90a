// lmdbio/load/slots/leaf_cache.h - leaf pages that were read once and will be needed again.
//
// Shuffled records of large values lie on pages of their own, but their keys share leaf pages:
// without this, each slot would read many of the same small pages once more.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_
#define LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::load {

// Keeps what comes first, until it is full. Threads: one at a time.
class LeafCache {
 public:
  static constexpr uint64_t kCapacityBytes = 8 << 20;
  static constexpr uint64_t kExtentBytesMax = 64 << 10;  // of leaf pages that lie together

  explicit LeafCache(uint64_t capacity_bytes = kCapacityBytes) : capacity_bytes_(capacity_bytes) {}

  bool Has(const Extent& file) const {
    const auto found = kept_.find(file.offset);
    return found != kept_.end() && found->second.length_bytes == file.length_bytes;
  }

  // Requires: Has(file). Lifetime: until the next Keep
  Bytes Get(const Extent& file) const {
    return Bytes(bytes_).subspan(kept_.at(file.offset).offset, file.length_bytes);
  }

  // Copies `bytes`, which were read from `file`, if there is room and they are not too many.
  void Keep(const Extent& file, Bytes bytes) {
    if (bytes.size() > kExtentBytesMax || bytes_.size() + bytes.size() > capacity_bytes_) return;
    const auto [place, is_new] = kept_.try_emplace(file.offset);
    if (!is_new) return;
    place->second = {bytes_.size(), file.length_bytes};
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

 private:
  uint64_t capacity_bytes_;
  std::vector<std::byte> bytes_;
  std::unordered_map<uint64_t, Extent> kept_;  // by offset in the file: where in bytes_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_LEAF_CACHE_H_
