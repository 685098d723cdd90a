#include "lmdbio/ranks/launcher/meeting_frame.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lmdbio::ranks {
namespace {

template <typename T>
void Append(std::vector<std::byte>& body, const T& value) {
  const Bytes bytes = std::as_bytes(std::span(&value, 1));
  body.insert(body.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::byte> EncodeHello(GuestIntroduction said, Bytes entry,
                                   std::span<const int> wanted) {
  said.entry_bytes = static_cast<uint32_t>(entry.size());
  said.wanted_count = static_cast<uint32_t>(wanted.size());
  std::vector<std::byte> body;
  Append(body, said);
  body.insert(body.end(), entry.begin(), entry.end());
  for (const int rank : wanted) Append(body, static_cast<int32_t>(rank));
  return body;
}

// The counts are compared with the bytes that are there before memory is taken for them.
std::optional<GuestHello> DecodeHello(Bytes body) {
  GuestHello hello;
  GuestIntroduction& said = hello.said;
  if (body.size() < sizeof said) return std::nullopt;
  std::memcpy(&said, body.data(), sizeof said);
  body = body.subspan(sizeof said);
  if (said.entry_bytes > kMeetingEntryBytesMax || said.wanted_count > kMeetingWantedMax ||
      body.size() != said.entry_bytes + size_t{said.wanted_count} * sizeof(int32_t)) {
    return std::nullopt;
  }
  const Bytes entry = body.first(said.entry_bytes);
  hello.entry.assign(entry.begin(), entry.end());
  hello.wanted.resize(said.wanted_count);
  std::ranges::copy(body.subspan(entry.size()),
                    std::as_writable_bytes(std::span(hello.wanted)).begin());
  return hello;
}

std::vector<std::byte> EncodeEntries(const JobKey& key,
                                     std::span<const std::vector<std::byte>> entries) {
  std::vector<std::byte> body(key.begin(), key.end());
  for (const std::vector<std::byte>& entry : entries) {
    Append(body, static_cast<uint32_t>(entry.size()));
    body.insert(body.end(), entry.begin(), entry.end());
  }
  return body;
}

std::optional<MeetingResult> DecodeEntries(Bytes body, size_t wanted_count) {
  MeetingResult result;
  if (body.size() < result.key.size()) return std::nullopt;
  std::ranges::copy(body.first(result.key.size()), result.key.begin());
  body = body.subspan(result.key.size());
  for (size_t i = 0; i < wanted_count; ++i) {
    uint32_t length = 0;
    if (body.size() < sizeof length) return std::nullopt;
    std::memcpy(&length, body.data(), sizeof length);
    body = body.subspan(sizeof length);
    if (length > body.size() || length > kMeetingEntryBytesMax) return std::nullopt;
    const Bytes entry = body.first(length);
    result.entries.emplace_back(entry.begin(), entry.end());
    body = body.subspan(length);
  }
  if (!body.empty()) return std::nullopt;
  return result;
}

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
