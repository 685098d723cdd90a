#include "lmdbio/sync/control/rank_topology.h"

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

// Hosts are numbered in the order of their first ranks. So rank 0 is the root of host 0, and one
// pass over the ranks finds all lists in ascending order.
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
  if (ranks.tree_arity < 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a tree of hosts has an arity of {}; expected 0 or more", ranks.tree_arity));
  }
  RankTopology layout;
  layout.rank_ = ranks.rank;
  layout.host_of_ = ranks.host_of.empty() ? std::vector<int>(size, 0) : ranks.host_of;
  layout.tree_arity_ = ranks.tree_arity;
  const int own_host = layout.HostOf(ranks.rank);
  int host_count = 0;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const int host = layout.HostOf(rank);
    if (host < 0 || host > host_count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} is on host {}; the next new host must be {}", rank, host,
                              host_count));
    }
    layout.all_.push_back(rank);
    if (host == own_host) layout.host_.push_back(rank);
    if (host < host_count) continue;
    ++host_count;
    layout.AddRoot(rank, host, own_host);
  }
  return layout;
}

void RankTopology::AddRoot(int root, int host, int own_host) {
  const int above = host == 0 ? -1 : ParentHost(host, tree_arity_);
  const int above_own = own_host == 0 ? -1 : ParentHost(own_host, tree_arity_);
  if (host == own_host || above == own_host) children_.push_back(root);
  if (own_host != 0 && (host == above_own || above == above_own)) parent_.push_back(root);
}

const std::vector<int>& RankTopology::Members(ExchangeScope scope) const {
  switch (scope) {
    case ExchangeScope::kAll:
      return all_;
    case ExchangeScope::kHost:
      return host_;
    case ExchangeScope::kChildren:
      return children_;
    case ExchangeScope::kParent:
      return parent_;
  }
  LMDBIO_CHECK(false);
}

bool RankTopology::IsBelow(int rank, int root) const {
  const int top = HostOf(root);
  int host = HostOf(rank);
  while (host > top) host = ParentHost(host, tree_arity_);
  return host == top;
}

}  // namespace lmdbio::sync
