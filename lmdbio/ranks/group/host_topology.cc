#include "lmdbio/ranks/group/host_topology.h"

#include <cstring>

namespace lmdbio::ranks {

Result<HostTopology> FindHostPlaces(Group& group, Group& host) {
  int root = group.rank();
  LMDBIO_TRY_VOID(host.Broadcast(0, std::as_writable_bytes(std::span(&root, 1))));
  LMDBIO_TRY(const auto gathered, group.AllGather(std::as_bytes(std::span(&root, 1))));
  const auto rank_count = static_cast<size_t>(group.size());
  HostTopology places;
  for (size_t rank = 0; rank < rank_count; ++rank) {
    std::memcpy(&root, &gathered[rank * sizeof root], sizeof root);
    // The loop meets a root before the other ranks of its host.
    const bool is_root = static_cast<size_t>(root) == rank;
    const int its_host = is_root ? places.host_count() : places.host_of[static_cast<size_t>(root)];
    if (is_root) places.ranks.emplace_back();
    std::vector<int>& ranks = places.ranks[static_cast<size_t>(its_host)];
    places.host_of.push_back(its_host);
    places.place_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  return places;
}

}  // namespace lmdbio::ranks
