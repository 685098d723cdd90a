// lmdbio/file/keys/kept_branches.h - branch pages of one tree that searches have checked and keep.
//
// Branch pages are about a hundredth of the leaf pages. A search that finds them here reads leaf
// pages only.
//
// Source: docs/keys.md "Search".
#ifndef LMDBIO_FILE_KEYS_KEPT_BRANCHES_H_
#define LMDBIO_FILE_KEYS_KEPT_BRANCHES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "lmdbio/file/format/branch_page.h"

namespace lmdbio::file {

// A branch page with memory of its own.
struct OwnedBranch {
  std::vector<std::byte> bytes;  // [page size]
  BranchPage page;               // a view of `bytes`
};

// Keeps the first pages that it is given, until it is full. A search goes from the root downwards,
// so these are the upper levels. Threads: any.
class KeptBranches {
 public:
  static constexpr uint64_t kCapacityBytes = uint64_t{64} << 20;

  explicit KeptBranches(uint64_t capacity_bytes = kCapacityBytes)
      : capacity_bytes_(capacity_bytes) {}

  // Null if the page is not kept.
  std::shared_ptr<const OwnedBranch> Find(PageNo page_no) const {
    const std::shared_lock lock(mutex_);
    const auto found = kept_.find(page_no.value);
    return found == kept_.end() ? nullptr : found->second;
  }

  // Does nothing if there is no room.
  void Keep(PageNo page_no, const std::shared_ptr<const OwnedBranch>& branch) {
    const std::unique_lock lock(mutex_);
    if (used_bytes_ + branch->bytes.size() > capacity_bytes_) return;
    const bool is_new = kept_.try_emplace(page_no.value, branch).second;
    if (is_new) used_bytes_ += branch->bytes.size();
  }

 private:
  const uint64_t capacity_bytes_;
  mutable std::shared_mutex mutex_;
  uint64_t used_bytes_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<const OwnedBranch>> kept_;  // by page number
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_KEYS_KEPT_BRANCHES_H_
