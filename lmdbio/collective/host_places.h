// lmdbio/collective/host_places.h - which rank of a group is on which host.
#ifndef LMDBIO_COLLECTIVE_HOST_PLACES_H_
#define LMDBIO_COLLECTIVE_HOST_PLACES_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/comm/group.h"

namespace lmdbio::collective {

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
Result<HostPlaces> FindHostPlaces(comm::Group& group, comm::Group& host);

}  // namespace lmdbio::collective
#endif  // LMDBIO_COLLECTIVE_HOST_PLACES_H_
