#include "lmdbio/sync/transport/host_all_gather.h"

#include <algorithm>

namespace lmdbio::sync {

HostAllGather::HostAllGather(SharedMailboxes& board)
    : board_(board), messages_(static_cast<size_t>(board.size())) {}

void HostAllGather::Begin(std::vector<std::byte> message) {
  own_ = std::move(message);
  sent_bytes_ = 0;
  for (std::vector<std::byte>& one : messages_) one.clear();
  is_over_ = false;
  ComeWithNext();
}

// A rank without bytes left comes with none, because each exchange of mailboxes needs all ranks.
void HostAllGather::ComeWithNext() {
  const size_t bytes = std::min(own_.size() - sent_bytes_, SharedMailboxes::kPlaceBytes);
  board_.Come(Bytes(own_).subspan(sent_bytes_, bytes), own_.size());
  sent_bytes_ += bytes;
}

// One exchange of mailboxes for each 8 KiB of the longest message. All ranks read the same total
// sizes, so all of them stop after the same exchange. Nearly all messages need one.
bool HostAllGather::Advance() {
  while (!is_over_ && board_.is_over()) {
    bool is_whole = true;
    for (int rank = 0; rank < board_.size(); ++rank) {
      std::vector<std::byte>& message = messages_[static_cast<size_t>(rank)];
      const Bytes piece = board_.BytesOf(rank);
      message.insert(message.end(), piece.begin(), piece.end());
      is_whole = is_whole && message.size() >= board_.TotalBytesOf(rank);
    }
    is_over_ = is_whole;
    if (!is_over_) ComeWithNext();
  }
  return is_over_;
}

}  // namespace lmdbio::sync
