// lmdbio/ranks/group/host_topology.h - the host of each rank of a group.
#ifndef LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_
#define LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// The same on every rank. Hosts are numbered in the order of their first ranks. The first rank of a
// host is its root.
struct HostTopology {
  std::vector<std::vector<int>> ranks;  // [host] in rising order
  std::vector<int> host_of;             // [rank]
  std::vector<int> place_of;            // [rank] its index among the ranks of its host

  int host_count() const { return static_cast<int>(ranks.size()); }
};

// Collective over `group`.
// host  the result of group.SplitByHost
// Errors: kInternal  MPI failed
Result<HostTopology> FindHostPlaces(Group& group, Group& host);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_
