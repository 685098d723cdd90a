// lmdbio/load/records/found_leaves.h - the leaf pages that one search of keys has read.
#ifndef LMDBIO_LOAD_RECORDS_FOUND_LEAVES_H_
#define LMDBIO_LOAD_RECORDS_FOUND_LEAVES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/load/plan/block_cutter.h"

namespace lmdbio::load {

// Reused from search to search. Threads: one at a time.
class FoundLeaves {
 public:
  bool empty() const { return at_.empty(); }

  void Clear() {
    at_.clear();
    bytes_.clear();
  }

  // bytes  [page size] of the page; copied
  void Add(PageNo page_no, Bytes bytes) {
    page_bytes_ = bytes.size();
    if (!at_.try_emplace(page_no.value, bytes_.size()).second) return;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  // True if all pages of the extent are here. It is page-aligned.
  bool Has(const Extent& file) const {
    if (empty() || file.offset % page_bytes_ != 0) return false;
    for (uint64_t at = 0; at < file.length_bytes; at += page_bytes_) {
      if (!at_.contains((file.offset + at) / page_bytes_)) return false;
    }
    return true;
  }

  // Copies the extents that a plan found here to their offsets in `memory`. Requires: Has of each
  void CopyTo(std::span<const PlannedExtent> had, MutableBytes memory) const {
    for (const PlannedExtent& extent : had) {
      for (uint64_t into = 0; into < extent.file.length_bytes; into += page_bytes_) {
        const uint64_t from = at_.at((extent.file.offset + into) / page_bytes_);
        const uint64_t length = std::min(page_bytes_, extent.file.length_bytes - into);
        std::ranges::copy(Bytes(bytes_).subspan(from, length),
                          memory.begin() + static_cast<ptrdiff_t>(extent.at + into));
      }
    }
  }

 private:
  uint64_t page_bytes_ = 1;
  std::vector<std::byte> bytes_;
  std::unordered_map<uint64_t, uint64_t> at_;  // by page number: its offset in bytes_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_FOUND_LEAVES_H_
