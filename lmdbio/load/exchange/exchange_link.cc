#include "lmdbio/load/exchange/exchange_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace lmdbio::load {
namespace {

constexpr size_t kPiecesMax = 64;     // of one sendmsg
constexpr size_t kSmallBytes = 4096;  // received behind a body: frames

}  // namespace

bool ExchangeLink::Flush(std::vector<ExchangeFrame>& sent) {
  while (!queue_.empty()) {
    std::array<iovec, kPiecesMax> pieces;
    size_t count = 0;
    const auto add = [&](Bytes bytes) {
      // sendmsg does not write to its pieces, but iovec has no const.
      if (!bytes.empty()) pieces[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    };
    for (const QueuedFrame& out : queue_) {
      if (count + 2 > kPiecesMax) break;
      const Bytes head = std::as_bytes(std::span(&out.frame, 1));
      add(head.subspan(std::min(out.sent_bytes, head.size())));
      add(out.body.subspan(out.sent_bytes - std::min(out.sent_bytes, head.size())));
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    // MSG_NOSIGNAL makes a reader that is gone an error and not a SIGPIPE.
    const ssize_t got = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    auto left = static_cast<size_t>(got);
    moved_bytes_ += left;
    while (left > 0) {
      QueuedFrame& out = queue_.front();
      const size_t rest = sizeof out.frame + out.body.size() - out.sent_bytes;
      const size_t part = std::min(rest, left);
      out.sent_bytes += part;
      left -= part;
      if (part < rest) break;
      sent.push_back(out.frame);
      queue_.pop_front();
    }
  }
  return true;
}

// One call fills the rest of the body that is arriving, and takes the frames behind it.
bool ExchangeLink::Receive(const Receiver& receiver) {
  std::array<std::byte, kSmallBytes> small;
  while (true) {
    std::array<iovec, 2> pieces{
        {{body_rest_.data(), body_rest_.size()}, {small.data(), small.size()}}};
    msghdr message{};
    message.msg_iov = body_rest_.empty() ? &pieces[1] : pieces.data();
    message.msg_iovlen = body_rest_.empty() ? 1 : 2;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    const auto bytes = static_cast<size_t>(got);
    moved_bytes_ += bytes;
    const size_t of_body = std::min(bytes, body_rest_.size());
    if (!AdvanceBody(of_body, receiver)) return false;
    if (!TakeBytes(Bytes(small).first(bytes - of_body), receiver)) return false;
  }
}

bool ExchangeLink::TakeBytes(Bytes bytes, const Receiver& receiver) {
  while (!bytes.empty()) {
    const bool is_body = !body_rest_.empty();
    const size_t wanted = is_body ? body_rest_.size() : head_.size() - head_bytes_;
    const Bytes part = bytes.first(std::min(bytes.size(), wanted));
    bytes = bytes.subspan(part.size());
    std::byte* const to = is_body ? body_rest_.data() : &head_[head_bytes_];
    std::memcpy(to, part.data(), part.size());
    if (is_body) {
      if (!AdvanceBody(part.size(), receiver)) return false;
      continue;
    }
    head_bytes_ += part.size();
    if (head_bytes_ == head_.size() && !TakeHead(receiver)) return false;
  }
  return true;
}

// A frame has arrived. A reply waits for its bytes, every other frame has none.
bool ExchangeLink::TakeHead(const Receiver& receiver) {
  std::memcpy(&body_frame_, head_.data(), sizeof body_frame_);
  head_bytes_ = 0;
  if (body_frame_.kind != ExchangeFrame::Kind::kReply) return receiver.take(body_frame_);
  body_rest_ = receiver.destination_of(body_frame_);
  return !body_rest_.empty();
}

bool ExchangeLink::AdvanceBody(size_t bytes, const Receiver& receiver) {
  if (bytes == 0) return true;
  body_rest_ = body_rest_.subspan(bytes);
  return !body_rest_.empty() || receiver.take(body_frame_);
}

std::vector<ExchangeFrame> ExchangeLink::Close() {
  std::vector<ExchangeFrame> unsent;
  for (const QueuedFrame& out : queue_) unsent.push_back(out.frame);
  queue_.clear();
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_ = UniqueFd();
  return unsent;
}

}  // namespace lmdbio::load
