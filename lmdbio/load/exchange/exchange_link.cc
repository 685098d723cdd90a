#include "lmdbio/load/exchange/exchange_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace lmdbio::load {
namespace {

constexpr size_t kPiecesMax = 64;     // of one sendmsg
constexpr size_t kSmallBytes = 4096;  // received beside a body: frames

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
bool ExchangeLink::Receive(const PlaceOf& place_of, std::vector<ExchangeFrame>& received) {
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
    const size_t of_body = std::min(bytes, body_rest_.size());
    AdvanceBody(of_body, received);
    if (!TakeBytes(Bytes(small).first(bytes - of_body), place_of, received)) return false;
  }
}

bool ExchangeLink::TakeBytes(Bytes bytes, const PlaceOf& place_of,
                             std::vector<ExchangeFrame>& received) {
  while (!bytes.empty()) {
    const bool is_body = !body_rest_.empty();
    const size_t wanted = is_body ? body_rest_.size() : head_.size() - head_bytes_;
    const Bytes part = bytes.first(std::min(bytes.size(), wanted));
    bytes = bytes.subspan(part.size());
    std::byte* const to = is_body ? body_rest_.data() : &head_[head_bytes_];
    std::memcpy(to, part.data(), part.size());
    if (is_body) {
      AdvanceBody(part.size(), received);
      continue;
    }
    head_bytes_ += part.size();
    if (head_bytes_ == head_.size() && !BeginBody(place_of, received)) return false;
  }
  return true;
}

// A frame is whole. A reply waits for its bytes, every other frame has none.
bool ExchangeLink::BeginBody(const PlaceOf& place_of, std::vector<ExchangeFrame>& received) {
  std::memcpy(&body_frame_, head_.data(), sizeof body_frame_);
  head_bytes_ = 0;
  if (body_frame_.kind != ExchangeFrame::Kind::kReply) {
    received.push_back(body_frame_);
    return true;
  }
  body_rest_ = place_of(body_frame_);
  return !body_rest_.empty();
}

void ExchangeLink::AdvanceBody(size_t bytes, std::vector<ExchangeFrame>& received) {
  if (bytes == 0) return;
  body_rest_ = body_rest_.subspan(bytes);
  if (body_rest_.empty()) received.push_back(body_frame_);
}

std::vector<ExchangeFrame> ExchangeLink::Close() {
  std::vector<ExchangeFrame> unsent;
  for (const QueuedFrame& out : queue_) unsent.push_back(out.frame);
  queue_.clear();
  socket_ = UniqueFd();
  return unsent;
}

}  // namespace lmdbio::load
