// lmdbio/ranks/net/job_addresses.h - the addresses of all ranks, and the key of the job.
//
// Source: docs/many_hosts.md "Messages".
#ifndef LMDBIO_RANKS_NET_JOB_ADDRESSES_H_
#define LMDBIO_RANKS_NET_JOB_ADDRESSES_H_

#include <cstddef>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "lmdbio/ranks/net/peer_door.h"

namespace lmdbio::ranks {

struct JobAddresses {
  JobKey key{};
  PeerDoor door;                       // of this rank; shut if no rank connects to it
  std::vector<PeerAddress> own;        // of this rank, also if it does not listen
  std::vector<Reachability> of_ranks;  // [ranks]

  // The addresses of `rank` in the order of connection attempts.
  std::vector<PeerAddress> InOrderFor(int rank) const;
};

// A key that no other job has.
// Errors: kUnsupported  the system refuses random numbers
Result<JobKey> DrawJobKey();

// The needs of this rank.
struct AddressPlan {
  enum class Listens { kNo, kYes } listens = Listens::kYes;
  size_t connection_count = 0;  // that this rank will hold
};

// Collective. Opens the door of this rank, if it listens, and exchanges the addresses.
// Errors: kIo                 some rank can listen nowhere; names the last address and the reason
//         kResourceExhausted  no descriptors for the connections; names the limit
//         kPeerFailed         one of these on another rank
//         kInternal           the group failed
// Cost: three small collective calls; memory for 164 bytes per rank
Result<JobAddresses> ExchangeAddresses(Group& group, const AddressPlan& plan);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_JOB_ADDRESSES_H_
