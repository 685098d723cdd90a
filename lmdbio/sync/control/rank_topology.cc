#include "lmdbio/sync/control/rank_topology.h"

#include <fmt/format.h>

namespace lmdbio::sync {

// Hosts are numbered in the order of their first ranks. So the root of host h is roots_[h], rank 0
// is the first root, and one pass over the ranks finds all lists in ascending order.
Result<RankTopology> RankTopology::Create(const Ranks& ranks) {
  if (ranks.size < 1 || ranks.rank < 0 || ranks.rank >= ranks.size) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} is out of range in a job of {} ranks", ranks.rank, ranks.size));
  }
  const auto size = static_cast<size_t>(ranks.size);
  if (!ranks.host_of.empty() && ranks.host_of.size() != size) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("hosts are given for {} ranks; expected {}", ranks.host_of.size(), ranks.size));
  }
  RankTopology layout;
  layout.rank_ = ranks.rank;
  layout.host_of_ = ranks.host_of.empty() ? std::vector<int>(size, 0) : ranks.host_of;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const int host = layout.HostOf(rank);
    if (host < 0 || static_cast<size_t>(host) > layout.roots_.size()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} is on host {}; the next new host must be {}", rank, host,
                              layout.roots_.size()));
    }
    if (static_cast<size_t>(host) == layout.roots_.size()) layout.roots_.push_back(rank);
    if (host == layout.HostOf(ranks.rank)) layout.host_.push_back(rank);
    layout.all_.push_back(rank);
  }
  return layout;
}

const std::vector<int>& RankTopology::Members(ExchangeScope scope) const {
  if (scope == ExchangeScope::kHost) return host_;
  return scope == ExchangeScope::kRoots ? roots_ : all_;
}

}  // namespace lmdbio::sync
