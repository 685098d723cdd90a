#include "lmdbio/ranks/launcher/meeting_frame.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace lmdbio::ranks {

void MeetingConnection::Send(MeetingWord word, uint64_t value, Bytes body) {
  const MeetingHead head{.word = word, .bytes = static_cast<uint32_t>(body.size()), .value = value};
  const Bytes bytes = std::as_bytes(std::span(&head, 1));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  out_.insert(out_.end(), body.begin(), body.end());
  Flush();
}

// The send of a socket that still connects fails with EAGAIN, and the send of one that could not
// connect fails with the reason.
void MeetingConnection::Flush() {
  size_t done = 0;
  while (done < out_.size() && !is_broken_) {
    const ssize_t sent =
        ::send(socket_.get(), &out_[done], out_.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      is_broken_ = true;
    }
  }
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(done));
}

// At most as much as one message needs, so a foreign program cannot fill the memory.
void MeetingConnection::ReadMore() {
  std::array<std::byte, 16384> piece;
  while (!is_broken_ && in_.size() < sizeof(MeetingHead) + kBodyBytesMax) {
    const ssize_t got = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      in_.insert(in_.end(), piece.begin(), piece.begin() + got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      is_broken_ = true;
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

// Messages that came before the end of the connection are still returned.
std::optional<MeetingMessage> MeetingConnection::Receive() {
  if (!is_broken_) ReadMore();
  MeetingMessage message;
  if (in_.size() < sizeof message.head) return std::nullopt;
  std::memcpy(&message.head, in_.data(), sizeof message.head);
  if (message.head.magic != MeetingHead::kMagic || message.head.bytes > kBodyBytesMax) {
    is_broken_ = true;
    in_.clear();
    return std::nullopt;
  }
  if (in_.size() - sizeof message.head < message.head.bytes) return std::nullopt;
  const auto begin = in_.begin() + sizeof message.head;
  const auto end = begin + static_cast<std::ptrdiff_t>(message.head.bytes);
  message.body.assign(begin, end);
  in_.erase(in_.begin(), end);
  return message;
}

}  // namespace lmdbio::ranks
