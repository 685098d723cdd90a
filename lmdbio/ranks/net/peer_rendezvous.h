// lmdbio/ranks/net/peer_rendezvous.h - how the links of ranks/net/peer_links.h come to stand.
//
// Every rank listens (ranks/net/peer_door.h), tells all others its addresses and connects to those
// that it will send to: at the loopback alone, if all ranks are in one network namespace. A rank
// that connects shows the job's key, its number and the number of the rank that it wants, and waits
// for an answer: an address may belong to another machine than it seems, or to nobody.
#ifndef LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_
#define LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_

#include <map>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

struct RendezvousResult {
  std::map<int, UniqueFd> outgoing;  // by rank; sockets that do not block
  std::map<int, UniqueFd> incoming;
};

// Collective. Errors: as PeerLinks::Open
// Source: docs/many_hosts.md "Messages".
Result<RendezvousResult> MeetPeers(Group& group, const LinkSpec& plan);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_
