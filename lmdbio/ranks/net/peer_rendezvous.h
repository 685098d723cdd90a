// lmdbio/ranks/net/peer_rendezvous.h - opens a fixed set of links between ranks at once.
//
// Every rank that receives opens a door (ranks/net/peer_door.h) and tells all ranks its addresses.
// The sender of each link connects (ranks/net/peer_connector.h). The door closes when all links
// stand. A connecting rank shows the key of the job, its number and the number of the wanted rank,
// and waits for an answer, because an address may belong to another machine, or to no machine.
#ifndef LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_
#define LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_

#include <chrono>
#include <functional>
#include <map>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// Sockets that do not block, by rank.
struct RendezvousResult {
  std::map<int, UniqueFd> outgoing;
  std::map<int, UniqueFd> incoming;
};

// Collective. Errors: as PeerLinks::Open
// Source: docs/many_hosts.md "Messages".
Result<RendezvousResult> MeetPeers(Group& group, const LinkSpec& plan);

// Not collective: opens the links of this rank to ranks that do the same, whose addresses and key
// it has by other means.
// rank   of this process among those of `job`
// job    the addresses of the ranks in `plan`, whose doors are open, and the door of this one
// limit  how long a rank may take to serve its door; one whose door is closed counts as gone after
//        2 s
// check  called twice a second or more often; its error ends the rendezvous
// Errors: kIo  some rank could not be reached; names it; those of `check`
Result<RendezvousResult> ConnectPeers(int rank, JobAddresses job, const LinkSpec& plan,
                                      std::chrono::milliseconds limit,
                                      const std::function<Status()>& check);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_RENDEZVOUS_H_
