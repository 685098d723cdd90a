#include "lmdbio/exchange/cursor_baton.h"

#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::exchange {

static_assert(std::is_trivially_copyable_v<HandedCursor>);

CursorBaton::CursorBaton(std::unique_ptr<comm::PeerLinks> links, const comm::Group& readers)
    : links_(std::move(links)),
      before_(comm::RankBefore(readers)),
      behind_(comm::RankBehind(readers)),
      begins_(readers.rank() == 0) {}

Result<std::unique_ptr<CursorBaton>> CursorBaton::Create(comm::Group& readers, int known_as) {
  LMDBIO_TRY(auto links,
             comm::PeerLinks::Open(
                 readers, {{comm::RankBehind(readers)}, {comm::RankBefore(readers)}, known_as}));
  return std::unique_ptr<CursorBaton>(new CursorBaton(std::move(links), readers));
}

bool CursorBaton::IsHere() { return begins_ || links_->HasMessage(before_); }

Result<std::optional<HandedCursor>> CursorBaton::Take() {
  if (std::exchange(begins_, false)) return HandedCursor{};
  LMDBIO_TRY(const auto message, links_->Receive(before_));
  if (!message) return std::nullopt;
  HandedCursor cursor;
  if (message->size() != sizeof cursor) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("malformed cursor message from another reader: {} bytes, expected {}",
                            message->size(), sizeof cursor));
  }
  std::memcpy(&cursor, message->data(), sizeof cursor);
  return cursor;
}

Status CursorBaton::HandOn(const HandedCursor& cursor) {
  return links_->Send(behind_, std::as_bytes(std::span(&cursor, 1)));
}

// The failure passes from host to host. A failed send is ignored, because a host that is gone
// cannot receive it.
void CursorBaton::HandOnFailure(const Error& error) {
  static_cast<void>(links_->SendFailure(behind_, error));
}

}  // namespace lmdbio::exchange
