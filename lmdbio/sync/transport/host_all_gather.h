// lmdbio/sync/transport/host_all_gather.h - an allgather of messages of any length among the ranks
// of a host, over their mailboxes.
//
// A mailbox holds a few KiB. The ranks repeat the exchange of mailboxes until the longest message
// has arrived. Each mailbox tells the total size of its message, so all ranks know when that is.
#ifndef LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_
#define LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_

#include <cstddef>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/sync/transport/shared_mailboxes.h"

namespace lmdbio::sync {

// Every rank contributes a message and gets the messages of all ranks.
// Threads: one at a time in each rank.
class HostAllGather {
 public:
  // board  must outlive this
  explicit HostAllGather(SharedMailboxes& board);

  // Collective. Begins an allgather. Requires: the last one is over
  void Begin(std::vector<std::byte> message);
  // Continues without waiting. Returns whether it is over.
  bool Advance();
  // Requires: the allgather is over
  Bytes MessageOf(int rank) const { return messages_[static_cast<size_t>(rank)]; }

 private:
  void ComeWithNext();

  SharedMailboxes& board_;
  bool is_over_ = true;
  std::vector<std::byte> own_;
  size_t sent_bytes_ = 0;
  std::vector<std::vector<std::byte>> messages_;  // [ranks] the parts that have arrived
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_
