// lmdbio/sync/request/rank_set.h - a set of ranks.
#ifndef LMDBIO_SYNC_REQUEST_RANK_SET_H_
#define LMDBIO_SYNC_REQUEST_RANK_SET_H_

#include <cstdint>
#include <vector>

namespace lmdbio::sync {

class RankSet {
 public:
  explicit RankSet(int rank_count) : has_(static_cast<size_t>(rank_count)) {}

  // False if the set contains it already.
  bool Add(int rank) {
    uint8_t& has = has_[static_cast<size_t>(rank)];
    if (has != 0) return false;
    has = 1;
    ++count_;
    return true;
  }
  bool Has(int rank) const { return has_[static_cast<size_t>(rank)] != 0; }
  int count() const { return count_; }
  int rank_count() const { return static_cast<int>(has_.size()); }
  void Clear() {
    has_.assign(has_.size(), 0);
    count_ = 0;
  }

  // The ranks that are neither in this set nor in `other`.
  // Requires: rank_count() is the same for both
  std::vector<int> MissingBeside(const RankSet& other) const {
    std::vector<int> missing;
    for (size_t rank = 0; rank < has_.size(); ++rank) {
      if (has_[rank] == 0 && other.has_[rank] == 0) missing.push_back(static_cast<int>(rank));
    }
    return missing;
  }
  // Whether every rank is in this set or in `other`.
  bool IsAllWith(const RankSet& other) const {
    if (count_ == rank_count()) return true;
    if (count_ + other.count_ < rank_count()) return false;
    return MissingBeside(other).empty();
  }

 private:
  std::vector<uint8_t> has_;
  int count_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_RANK_SET_H_
