// lmdbio/collective/link_wire.h - a wire of TCP connections, which is slept for.
//
// Two connections between any two ranks, one for each direction, made once. Bytes go from and to
// the caller's memory. What a connection's other direction carries is news: that its rank has left
// in good order, or why it has stopped. A connection that ends without news tells that a rank died.
//
// Source: docs/collectives.md "Messages"; docs/many_hosts.md "Messages".
#ifndef LMDBIO_COLLECTIVE_LINK_WIRE_H_
#define LMDBIO_COLLECTIVE_LINK_WIRE_H_

#include <memory>

#include "lmdbio/collective/collectives.h"
#include "lmdbio/collective/message_wire.h"
#include "lmdbio/comm/group.h"
#include "lmdbio/comm/health.h"

namespace lmdbio::collective {

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
// Errors: kIo                 some rank could not be reached; as comm::PeerLinks::Open
//         kResourceExhausted  no descriptors; the same failure on every rank
Result<std::unique_ptr<LinkWire>> OpenLinkWire(comm::Group& group, comm::Health& health,
                                               const LinkWireOptions& options);

}  // namespace lmdbio::collective
#endif  // LMDBIO_COLLECTIVE_LINK_WIRE_H_
