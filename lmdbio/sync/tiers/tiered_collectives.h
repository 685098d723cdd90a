// lmdbio/sync/tiers/tiered_collectives.h - collectives of several hosts: within each, and between
// their roots.
//
// Every call has three steps: up to the root of each host, across between the roots, and down
// again. A rank that declines is detected on the way, before any output is written. Ranks agree on
// a large call first and then move its bytes in place. A small call moves its bytes at once, in a
// buffer of its own.
//
// A host may have several roots. In a large AllReduce each of them reduces its part of the values
// with its peers on the other hosts.
//
// Source: Romero et al. 2.2.3; docs/collectives.md "Several hosts".
#ifndef LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_
#define LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_

#include <cstdint>
#include <memory>

#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

struct TieredOptions {
  int host_roots = 1;  // the first ranks of each host; every host has as many ranks or more
  uint64_t apart_bytes_max = 512 << 10;  // a larger AllReduce is made in place
  // The size of registered memory that every rank of every host has.
  uint64_t registered_bytes = 0;
  uint64_t ample_bytes = kUsualAmpleBytes;  // of the roots; other ranks cannot ask for it
  bool is_reproducible = false;             // of hosts and roots, on all ranks
};

// host   of the ranks of this host, in their order
// roots  of the roots with the same place on each host; null if this rank is not a root. Those of
//        the first ranks are in the order of the hosts, the others in any order
// Cost: AllToAll sends all bytes to all ranks, and ReduceScatter reduces all parts on all ranks.
//       ReduceToParts and GatherParts agree first, in three calls more each
std::unique_ptr<Collectives> TieredCollectives(ranks::HostTopology places, int rank,
                                               std::unique_ptr<Collectives> host,
                                               std::unique_ptr<Collectives> roots,
                                               const TieredOptions& options = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TIERS_TIERED_COLLECTIVES_H_
