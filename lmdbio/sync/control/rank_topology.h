// lmdbio/sync/control/rank_topology.h - the members of each exchange scope.
#ifndef LMDBIO_SYNC_CONTROL_RANK_TOPOLOGY_H_
#define LMDBIO_SYNC_CONTROL_RANK_TOPOLOGY_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/exchange.h"

namespace lmdbio::sync {

class RankTopology {
 public:
  // Errors: kInvalidArgument  a rank outside [0, size); hosts that are not numbered in the order of
  //                           their first ranks
  static Result<RankTopology> Create(const Ranks& ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(host_of_.size()); }
  bool is_root() const { return host_.front() == rank_; }
  int HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }

  // The ranks that take part in an exchange of `scope` of this rank, ascending.
  // Requires: kChildren: this rank is a root; kParent: it is a root other than rank 0
  const std::vector<int>& Members(ExchangeScope scope) const;

  // Whether the host of `rank` is that of `root`, or below it in the tree of hosts.
  bool IsBelow(int rank, int root) const;

 private:
  RankTopology() = default;
  // Adds the root of a host to the scopes that it belongs to.
  void AddRoot(int root, int host, int own_host);

  int rank_ = 0;
  int tree_arity_ = 0;
  std::vector<int> host_of_;
  std::vector<int> all_;
  std::vector<int> host_;
  std::vector<int> children_;
  std::vector<int> parent_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_RANK_TOPOLOGY_H_
