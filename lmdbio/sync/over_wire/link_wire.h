// lmdbio/sync/over_wire/link_wire.h - a wire of TCP connections, which is slept for.
//
// Two connections between any two ranks, one for each direction, made once. Bytes go from and to
// the caller's memory. What a connection's other direction carries is news: that its rank has left
// in good order, or why it has stopped. A connection that ends without news tells that a rank died.
//
// Source: docs/collectives.md "Messages"; docs/many_hosts.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_
#define LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_

#include <memory>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"

namespace lmdbio::sync {

struct LinkWireOptions {
  int known_as = -1;  // this rank in messages, where it is another there; -1: its rank
  WaitMode wait_mode = WaitMode::kSleep;
};

class LinkWire : public Wire {
 public:
  // Ends all connections without a word, as the end of the process would: for tests of what the
  // other ranks see. Only the destructor may follow.
  virtual void Sever() = 0;
};

// Collective. The group is not used afterwards.
// health  looked at while waiting
// Lifetime: `health` outlives the wire
// Errors: kIo                 some rank could not be reached; as ranks::PeerLinks::Open
//         kResourceExhausted  no descriptors; the same failure on every rank
Result<std::unique_ptr<LinkWire>> OpenLinkWire(ranks::Group& group, ranks::Health& health,
                                               const LinkWireOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_LINK_WIRE_H_
