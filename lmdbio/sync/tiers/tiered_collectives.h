// lmdbio/sync/tiers/tiered_collectives.h - collectives of several hosts: within each, and between
// their roots.
//
// Every call goes up to the root of each host, across between the roots, and down again; who
// declines, on whatever host, is heard of on the way. What is large is agreed upon first, and then
// moved in place; what is small moves at once, in memory of its own.
//
// Source: docs/collectives.md "Several hosts".
#ifndef LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_
#define LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_

#include <cstdint>
#include <memory>

#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

struct TieredOptions {
  uint64_t apart_bytes_max = 512 << 10;  // an AllReduce of more is made in place
  // Of this rank's registered memory on its host, what all ranks of all hosts have.
  uint64_t registered_bytes = 0;
  uint64_t ample_bytes = kUsualAmpleBytes;  // the roots', which other ranks do not know
};

// host   of the ranks of this host, in their order
// roots  of the roots of all hosts, in the order of hosts; null if this rank is none
// Cost: AllToAll brings everybody's bytes to everybody, and ReduceScatter reduces all parts
std::unique_ptr<Collectives> TieredCollectives(ranks::HostTopology places, int rank,
                                               std::unique_ptr<Collectives> host,
                                               std::unique_ptr<Collectives> roots,
                                               const TieredOptions& options = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_
