// lmdbio/ranks/group/host_topology.h - which rank of a group is on which host.
#ifndef LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_
#define LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// The same on every rank. Hosts count in the order of their first ranks; the first rank of a host
// is its root.
struct HostTopology {
  std::vector<std::vector<int>> ranks;  // [host] in rising order
  std::vector<int> host_of;             // [rank]
  std::vector<int> place_of;            // [rank] its place among the ranks of its host

  int host_count() const { return static_cast<int>(ranks.size()); }
};

// Collective over `group`.
// host  as group.SplitByHost made it
// Errors: kInternal  MPI failed
Result<HostTopology> FindHostPlaces(Group& group, Group& host);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_HOST_TOPOLOGY_H_
