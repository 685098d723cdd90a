// lmdbio/ranks/linked/meeting_place.h - where ranks that know only their numbers find each other.
//
// Each rank brings an entry, its addresses, and takes those of the few ranks that it will connect
// to. So a large job moves little, and no rank needs the addresses of all.
//
//   HostedMeeting  rank 0 listens at a port that all ranks know (hosted_meeting.h)
//   StoreMeeting   a key-value store of the program, such as that of torch.distributed
//                  (store_meeting.h)
#ifndef LMDBIO_RANKS_LINKED_MEETING_PLACE_H_
#define LMDBIO_RANKS_LINKED_MEETING_PLACE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/ranks/net/peer_door.h"

namespace lmdbio::ranks {

constexpr size_t kMeetingEntryBytesMax = 4096;
constexpr size_t kMeetingWantedMax = 64;

struct MeetingResult {
  JobKey key{};                                 // of the job, drawn by rank 0
  std::vector<std::vector<std::byte>> entries;  // [wanted]
};

// Threads: one at a time.
// Lifetime: ends when the ranks are connected. A rank that ends earlier, without GiveUp, has died
//           for the others
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;

  // Collective. Brings the entry of this rank, and sleeps until those of `wanted` are there.
  // mine    [at most kMeetingEntryBytesMax]
  // wanted  [at most kMeetingWantedMax] ranks
  // Errors: kPeerFailed       ranks have not come within the limit; a rank has ended, or given up;
  //                           names them
  //         kInvalidArgument  the ranks expect different numbers of ranks, or several have one
  //                           number; the port belongs to another job
  //         kIo               the meeting place cannot be reached, or rank 0 can listen nowhere
  virtual Result<MeetingResult> Exchange(Bytes mine, std::span<const int> wanted) = 0;

  // Looks whether another rank has failed. Does not wait.
  // Errors: as Exchange
  virtual Status Check() = 0;

  // Tells the other ranks that this one has failed.
  virtual void GiveUp(const Error& why) = 0;

  // All ranks are connected: this rank may leave, and is not missed.
  virtual void Finish() = 0;
};

// The failure of `rank` in the words that the other ranks get. Those of another rank's failure name
// that one already.
std::string WordsForOthers(int rank, const Error& why);

// This rank expects another number of ranks than rank 0: kInvalidArgument.
tl::unexpected<Error> OtherSize(int size, int size_of_rank_0);

// "rank 3", "ranks 3, 5 and 7", "ranks 3, 5, 7 and 12 more".
// ranks  [> 0] in rising order
std::string NamesOfRanks(std::span<const int> ranks);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LINKED_MEETING_PLACE_H_
