// lmdbio/ranks/linked/connected_group.h - ranks that meet, connect along a tree and watch each
// other.
//
// Source: docs/launchers.md "Meeting".
#ifndef LMDBIO_RANKS_LINKED_CONNECTED_GROUP_H_
#define LMDBIO_RANKS_LINKED_CONNECTED_GROUP_H_

#include <chrono>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/linked/linked_group.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {

// All ranks know of a silent rank within 5 s: the limit, a sign that is on its way, and the tree.
constexpr auto kRankSilenceLimit = std::chrono::milliseconds(4'000);

// The limit in the variable LMDBIO_RANK_SILENCE_LIMIT_MS, or kRankSilenceLimit. 0 serves debuggers,
// which stop ranks.
// Errors: kInvalidArgument  not 0 and not a number from 500 to 3,600,000
Result<std::chrono::milliseconds> ReadRankSilenceLimit();

// The place of this process among those that meet.
struct MeetingSeat {
  int rank = 0;
  int size = 2;                             // [> 1]
  std::chrono::milliseconds limit{30'000};  // how long a rank may take to connect; at least 30 s
};

// Collective over the ranks that meet at `place`. Ends the meeting: all leave it, or this rank
// gives up. From then on the ranks watch each other, with the limit of ReadRankSilenceLimit, which
// must be the same on all ranks.
// Errors: kPeerFailed, kInvalidArgument, kIo  as MeetingPlace::Exchange, ConnectPeers
//         kInvalidArgument                    as ReadRankSilenceLimit
//         kResourceExhausted                  no descriptors, no thread
Result<std::unique_ptr<LinkedGroup>> ConnectedGroup(MeetingPlace& place, const MeetingSeat& seat);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LINKED_CONNECTED_GROUP_H_
