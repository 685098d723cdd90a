// lmdbio/sync/transport/host_all_gather.h - messages of any length between the ranks of a host,
// over a board.
#ifndef LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_
#define LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_

#include <cstddef>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/sync/transport/shared_mailboxes.h"

namespace lmdbio::sync {

// Every rank brings a message and gets those of all.
// Threads: one at a time in each rank.
class HostAllGather {
 public:
  // board  must outlive this
  explicit HostAllGather(SharedMailboxes& board);

  // Collective. Begins a meeting. Requires: the last one is over
  void Begin(std::vector<std::byte> message);
  // Goes on with it; true when it is over. Never waits.
  bool Advance();
  // Requires: it is over
  Bytes MessageOf(int rank) const { return messages_[static_cast<size_t>(rank)]; }

 private:
  void ComeWithNext();

  SharedMailboxes& board_;
  bool is_over_ = true;
  std::vector<std::byte> own_;
  size_t sent_bytes_ = 0;
  std::vector<std::vector<std::byte>> messages_;  // [ranks] as far as they are here
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_HOST_ALL_GATHER_H_
