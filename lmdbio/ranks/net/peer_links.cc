#include "lmdbio/ranks/net/peer_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/rank_names.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"
#include "lmdbio/ranks/net/wake_event.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

// A message is a frame, followed by length_bytes bytes. All ranks run the same program, so the
// frame travels as the bytes of this struct.
struct Frame {
  uint32_t kind = 0;
  int32_t error_number = 0;  // of a failure: Error::error_number()
  uint64_t length_bytes = 0;
};
constexpr uint32_t kMessage = 1;
constexpr uint32_t kFailure = 2;  // the bytes are the text of an error
constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;
constexpr size_t kReceiveBytes = 64 << 10;

// The frame in front of `bytes`, if it is there.
std::optional<Frame> FrameIn(Bytes bytes) {
  Frame frame;
  if (bytes.size() < sizeof frame) return std::nullopt;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  return frame;
}

// No rank of this version sends another frame. Its bytes would be kept until all of them have come.
bool IsMalformed(const Frame& frame) {
  const bool is_known = frame.kind == kMessage || frame.kind == kFailure;
  return !is_known || frame.length_bytes > kMessageBytesMax;
}

}  // namespace

Status PeerLinks::MakeEvents() {
  stop_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  wake_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop_event_ && wake_event_) return {};
  return CallFailed(ErrorCode::kResourceExhausted, "eventfd", errno);
}

Result<std::unique_ptr<PeerLinks>> PeerLinks::Open(Group& group, const LinkSpec& plan) {
  std::unique_ptr<PeerLinks> links(new PeerLinks());
  // A rank without its events would leave the others in the rendezvous, so the ranks agree before
  // it.
  LMDBIO_TRY_VOID(Agree(group, links->MakeEvents()));
  LMDBIO_TRY(links->names_, GatherRankNames(group, plan.known_as));
  LMDBIO_TRY(RendezvousResult met, MeetPeers(group, plan));
  links->TakeSockets(std::move(met));
  return links;
}

Result<std::unique_ptr<PeerLinks>> PeerLinks::Adopt(RendezvousResult met,
                                                    std::vector<std::string> names) {
  std::unique_ptr<PeerLinks> links(new PeerLinks());
  LMDBIO_TRY_VOID(links->MakeEvents());
  links->names_ = std::move(names);
  links->TakeSockets(std::move(met));
  return links;
}

void PeerLinks::TakeSockets(RendezvousResult met) {
  for (auto& [rank, socket] : met.outgoing) outgoing_[rank].socket = std::move(socket);
  for (auto& [rank, socket] : met.incoming) incoming_[rank].socket = std::move(socket);
}

tl::unexpected<Error> PeerLinks::Gone(int rank) const {
  return Fail(ErrorCode::kPeerFailed,
              fmt::format("{} has ended unexpectedly", names_[static_cast<size_t>(rank)]));
}

// Any event on the socket ends the wait, errors included: the next call on it returns the reason.
// The stop event is never read, so it ends all later waits as well.
PeerLinks::Waited PeerLinks::Wait(int socket, short events) const {
  while (!is_stopped_.load()) {
    std::array<pollfd, 2> polled{{{socket, events, 0}, {stop_event_.get(), POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), -1);
    if (polled[1].revents == 0 && polled[0].revents != 0) return Waited::kReady;
  }
  return Waited::kStopped;
}

// Sends as many bytes as the connection has room for. MSG_NOSIGNAL makes a peer that is gone an
// error and not a SIGPIPE.
void PeerLinks::SendSome(Outgoing& link) {
  size_t done = 0;
  while (done < link.bytes.size() && !link.is_gone) {
    const ssize_t sent = ::send(link.socket.get(), &link.bytes[done], link.bytes.size() - done,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      link.is_gone = true;
    }
  }
  link.bytes.erase(link.bytes.begin(), link.bytes.begin() + static_cast<std::ptrdiff_t>(done));
}

// Behind the bytes that are still waiting, so messages keep their order.
void PeerLinks::Append(Outgoing& link, uint32_t kind, Bytes message, int error_number) {
  LMDBIO_CHECK(message.size() <= kMessageBytesMax);
  const Frame frame{kind, error_number, message.size()};
  const Bytes head = std::as_bytes(std::span(&frame, 1));
  link.bytes.insert(link.bytes.end(), head.begin(), head.end());
  link.bytes.insert(link.bytes.end(), message.begin(), message.end());
}

// Stop ends the loop without an error: the caller is being closed.
Status PeerLinks::DrainOne(int to, Outgoing& link) {
  while (true) {
    SendSome(link);
    if (link.is_gone) return Gone(to);
    if (link.bytes.empty() || Wait(link.socket.get(), POLLOUT) == Waited::kStopped) return {};
  }
}

// Also sends what Post has left behind, as both go through one queue.
Status PeerLinks::Send(int to, Bytes message) {
  Outgoing& link = outgoing_.at(to);
  Append(link, kMessage, message);
  return DrainOne(to, link);
}

// A failure takes its turn in the queue, so the messages before it still arrive.
Status PeerLinks::SendFailure(int to, const Error& error) {
  PostFailure(to, error);
  return DrainOne(to, outgoing_.at(to));
}

void PeerLinks::PostFailure(int to, const Error& error) {
  Outgoing& link = outgoing_.at(to);
  Append(link, kFailure, std::as_bytes(std::span(error.message())), error.error_number());
  SendSome(link);
}

Status PeerLinks::Post(int to, Bytes message) {
  Outgoing& link = outgoing_.at(to);
  Append(link, kMessage, message);
  SendSome(link);
  return link.is_gone ? Gone(to) : Status();
}

bool PeerLinks::Flush() {
  // A peer that is gone has nothing left to send; Send and Post report it.
  bool is_empty = true;
  for (auto& [rank, link] : outgoing_) {
    SendSome(link);
    is_empty = is_empty && (link.bytes.empty() || link.is_gone);
  }
  return is_empty;
}

Status PeerLinks::Drain() {
  for (auto& [rank, link] : outgoing_) LMDBIO_TRY_VOID(DrainOne(rank, link));
  return {};
}

// A malformed frame needs no more bytes. It stays in front, so every later Receive fails, too.
bool PeerLinks::IsWhole(const Incoming& link) {
  const std::optional<Frame> frame = FrameIn(link.bytes);
  if (!frame) return false;
  return IsMalformed(*frame) || link.bytes.size() - sizeof *frame >= frame->length_bytes;
}

// An end of file and a broken connection mean the same here: the peer is gone.
PeerLinks::Read PeerLinks::ReadMore(Incoming& link) {
  std::array<std::byte, kReceiveBytes> piece;
  const ssize_t got = ::recv(link.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) {
    link.bytes.insert(link.bytes.end(), piece.begin(), piece.begin() + got);
    return Read::kSome;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? Read::kNothingYet : Read::kEnd;
}

// A peer that is gone counts as a message, because Receive returns at once.
bool PeerLinks::HasMessage(int from) {
  Incoming& link = incoming_.at(from);
  while (!IsWhole(link)) {
    const Read read = ReadMore(link);
    if (read != Read::kSome) return read == Read::kEnd;
  }
  return true;
}

bool PeerLinks::IsGone(int from) { return HasMessage(from) && !IsWhole(incoming_.at(from)); }

Result<std::optional<std::vector<std::byte>>> PeerLinks::Receive(int from) {
  Incoming& link = incoming_.at(from);
  while (!IsWhole(link)) {
    if (Wait(link.socket.get(), POLLIN) == Waited::kStopped) return std::nullopt;
    if (ReadMore(link) == Read::kEnd) return Gone(from);
  }
  const Frame frame = *FrameIn(link.bytes);
  if (IsMalformed(frame)) {
    return lmdbio::Fail(ErrorCode::kPeerFailed,
                        fmt::format("{} has sent a malformed message: kind {}, {} bytes",
                                    NameOf(from), frame.kind, frame.length_bytes));
  }
  const auto begin = link.bytes.begin() + sizeof frame;
  const auto end = begin + static_cast<std::ptrdiff_t>(frame.length_bytes);
  std::vector<std::byte> message(begin, end);
  link.bytes.erase(link.bytes.begin(), end);
  if (frame.kind == kMessage) return message;
  if (message.empty()) return lmdbio::Fail(ErrorCode::kPeerFailed, NameOf(from) + " has failed");
  return lmdbio::Fail(ErrorCode::kPeerFailed,
                      std::string(reinterpret_cast<const char*>(message.data()), message.size()),
                      frame.error_number);
}

Result<std::optional<std::vector<std::byte>>> PeerLinks::ReceiveAndFlush(int from) {
  Incoming& link = incoming_.at(from);
  std::vector<pollfd> polled;
  while (!IsWhole(link) && !Flush()) {
    polled.assign({{stop_event_.get(), POLLIN, 0}, {link.socket.get(), POLLIN, 0}});
    for (const auto& [rank, out] : outgoing_) {
      if (!out.bytes.empty() && !out.is_gone) polled.push_back({out.socket.get(), POLLOUT, 0});
    }
    ::poll(polled.data(), polled.size(), -1);
    if (is_stopped_.load()) return std::nullopt;
    if (ReadMore(link) == Read::kEnd) return Gone(from);
  }
  return Receive(from);  // nothing is left to send, or the message is here
}

bool PeerLinks::Progress(std::optional<int> from, std::chrono::milliseconds limit) {
  const bool is_sent = Flush();
  const bool has_come = !from || HasMessage(*from);
  if (is_sent && has_come) return true;
  std::vector<pollfd> polled = {{stop_event_.get(), POLLIN, 0}};
  if (!has_come) polled.push_back({incoming_.at(*from).socket.get(), POLLIN, 0});
  for (const auto& [rank, out] : outgoing_) {
    if (!out.bytes.empty() && !out.is_gone) polled.push_back({out.socket.get(), POLLOUT, 0});
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  return false;
}

std::optional<int> PeerLinks::AwaitAny(std::span<const int> from, std::chrono::milliseconds limit) {
  std::vector<pollfd> polled;
  while (!is_stopped_.load()) {
    // Messages that were received already lie in this object, where poll does not see them.
    for (const int rank : from) {
      if (HasMessage(rank)) return rank;
    }
    polled.clear();
    for (const int rank : from) polled.push_back({incoming_.at(rank).socket.get(), POLLIN, 0});
    polled.push_back({stop_event_.get(), POLLIN, 0});
    polled.push_back({wake_event_.get(), POLLIN, 0});
    const int ready_count = ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
    // Reading clears the event, so one Wake ends one wait.
    if (Reset(wake_event_)) return std::nullopt;
    if (ready_count == 0) return std::nullopt;
  }
  return std::nullopt;
}

void PeerLinks::Wake() { Signal(wake_event_); }

void PeerLinks::Stop() {
  // The flag comes first: a thread that wakes up looks at it.
  is_stopped_.store(true);
  Signal(stop_event_);
}

}  // namespace lmdbio::ranks
