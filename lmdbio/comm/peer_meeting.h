// lmdbio/comm/peer_meeting.h - how the links of comm/peer_links.h come to stand.
//
// Every rank listens (comm/peer_door.h), tells all others its addresses and connects to those that
// it will send to: at the loopback alone, if all ranks are in one network namespace. A rank that
// connects shows the job's key, its number and the number of the rank that it wants, and waits for
// an answer: an address may belong to another machine than it seems, or to nobody.
#ifndef LMDBIO_COMM_PEER_MEETING_H_
#define LMDBIO_COMM_PEER_MEETING_H_

#include <map>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/comm/group.h"
#include "lmdbio/comm/peer_links.h"

namespace lmdbio::comm {

struct MeetingResult {
  std::map<int, UniqueFd> outgoing;  // by rank; sockets that do not block
  std::map<int, UniqueFd> incoming;
};

// Collective. Errors: as PeerLinks::Open
// Source: docs/many_hosts.md "Messages".
Result<MeetingResult> MeetPeers(Group& group, const LinkPlan& plan);

}  // namespace lmdbio::comm
#endif  // LMDBIO_COMM_PEER_MEETING_H_
