#include "lmdbio/load/locate/cursor_handoff.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {

static_assert(std::is_trivially_copyable_v<HandedCursor>);

// A bool of another value than 0 and 1 must not be read, so its byte is looked at first.
Result<HandedCursor> HandedCursorIn(Bytes message) {
  HandedCursor cursor;
  const bool is_cursor =
      message.size() == sizeof cursor &&
      std::to_integer<uint8_t>(message[offsetof(HandedCursor, is_standing)]) <= 1;
  if (!is_cursor) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("malformed cursor message from another reader: {} bytes, expected {}",
                            message.size(), sizeof cursor));
  }
  std::memcpy(&cursor, message.data(), sizeof cursor);
  return cursor;
}

CursorHandoff::CursorHandoff(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers)
    : links_(std::move(links)),
      before_(ranks::RankBefore(readers)),
      behind_(ranks::RankBehind(readers)),
      begins_(readers.rank() == 0) {}

Result<std::unique_ptr<CursorHandoff>> CursorHandoff::Create(ranks::Group& readers, int known_as) {
  LMDBIO_TRY(auto links,
             ranks::PeerLinks::Open(
                 readers, {{ranks::RankBehind(readers)}, {ranks::RankBefore(readers)}, known_as}));
  return std::unique_ptr<CursorHandoff>(new CursorHandoff(std::move(links), readers));
}

// The first host starts with a cursor that stands nowhere, and no message brings it.
bool CursorHandoff::IsHere() { return begins_ || links_->HasMessage(before_); }

Result<std::optional<HandedCursor>> CursorHandoff::Take() {
  if (std::exchange(begins_, false)) return HandedCursor{};
  LMDBIO_TRY(const auto message, links_->Receive(before_));
  if (!message) return std::nullopt;
  LMDBIO_TRY(const HandedCursor cursor, HandedCursorIn(*message));
  return cursor;
}

// About 1 KiB: two stacks of (page, index), 32 levels each. It is sent at once, because the next
// host sleeps until it arrives.
Status CursorHandoff::HandOn(const HandedCursor& cursor) {
  return links_->Send(behind_, std::as_bytes(std::span(&cursor, 1)));
}

// The failure passes from host to host. A failed send is ignored, because a host that is gone
// cannot receive it.
void CursorHandoff::HandOnFailure(const Error& error) {
  static_cast<void>(links_->SendFailure(behind_, error));
}

}  // namespace lmdbio::load
