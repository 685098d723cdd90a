// lmdbio/comm/host_places.h - which rank of a group is on which host.
#ifndef LMDBIO_COMM_HOST_PLACES_H_
#define LMDBIO_COMM_HOST_PLACES_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/comm/group.h"

namespace lmdbio::comm {

// The same on every rank. Hosts count in the order of their first ranks; the first rank of a host
// is its root.
struct HostPlaces {
  std::vector<std::vector<int>> ranks;  // [host] in rising order
  std::vector<int> host_of;             // [rank]
  std::vector<int> place_of;            // [rank] its place among the ranks of its host

  int host_count() const { return static_cast<int>(ranks.size()); }
};

// Collective over `group`.
// host  as group.SplitByHost made it
// Errors: kInternal  MPI failed
Result<HostPlaces> FindHostPlaces(Group& group, Group& host);

}  // namespace lmdbio::comm
#endif  // LMDBIO_COMM_HOST_PLACES_H_
