// lmdbio/sync/over_wire/link_wire.h - a wire of TCP connections, with sleeping receivers.
//
// A connection leads from one rank to another and carries data in one direction, from and to the
// caller's memory. The first send to a rank opens it. The other direction carries one notice: the
// rank has left in good order, or has stopped and why. If the connection to a rank ends without a
// notice, the rank has died. If only a connection from a rank ends, the wire waits a second for the
// reason before it reports that the rank has died.
//
// A rank that dies before another rank has a connection to it is reported by `Health` alone.
//
// Source: docs/collectives.md "Messages"; docs/many_hosts.md "Number of connections".
#ifndef LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_
#define LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_

#include <memory>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"

namespace lmdbio::sync {

struct LinkWireOptions {
  int known_as = -1;  // the number of this rank in error messages; -1: its rank in the group
  WaitMode wait_mode = WaitMode::kSleep;
};

class LinkWire : public Wire {
 public:
  // Ends all connections without a notice, as the end of the process does. For tests of the other
  // ranks. Only the destructor may follow.
  virtual void Sever() = 0;
};

// Collective. The group is not used afterwards.
// health  the wire checks it while it waits
// Lifetime: `health` outlives the wire
// Errors: kIo                 some rank can listen nowhere
//         kResourceExhausted  no descriptors or no thread; the same failure on every rank
// Cost: descriptors for the door of this rank, three events, and each open connection. AllReduce,
//       Broadcast, AllGather and Barrier need at most 3 log2 P + 4 connections
Result<std::unique_ptr<LinkWire>> OpenLinkWire(ranks::Group& group, ranks::Health& health,
                                               const LinkWireOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_
