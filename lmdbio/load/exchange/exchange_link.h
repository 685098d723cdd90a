// lmdbio/load/exchange/exchange_link.h - requests and replies between two readers.
//
// A message is a frame. Behind the frame of a reply follow the bytes. They go from the chunk of one
// reader to the socket, and from the socket to the destination of the other.
//
// Source: docs/exchange.md "Messages".
#ifndef LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINK_H_
#define LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::load {

// All readers run the same program, so a frame travels as the bytes of this struct.
struct ExchangeFrame {
  enum class Kind : uint32_t {
    kRequest = 1,  // the receiver shall send these bytes of the file
    kReply = 2,    // the bytes follow
    kRefusal = 3,  // the receiver shall read these bytes itself
  };
  Kind kind = Kind::kRequest;
  uint32_t id = 0;  // of the request; a reply and a refusal repeat it
  uint64_t offset = 0;
  uint64_t length_bytes = 0;
};
static_assert(std::is_trivially_copyable_v<ExchangeFrame> && sizeof(ExchangeFrame) == 24);

// Threads: one at a time.
class ExchangeLink {
 public:
  // The user of the frames. A frame is taken when it is whole, a reply with its bytes. So the next
  // frame is looked at only after the one before it was taken.
  struct Receiver {
    // The destination of a reply; empty if the reply was not asked for.
    std::function<MutableBytes(const ExchangeFrame& reply)> destination_of;
    // Returns false if the frame is malformed.
    std::function<bool(const ExchangeFrame&)> take;
  };

  // socket  connected, does not block
  explicit ExchangeLink(UniqueFd socket) : socket_(std::move(socket)) {}

  // Queues a frame, and `body` behind it. Nothing is sent before Flush.
  // body  [frame.length_bytes, or empty] borrowed until Flush or Close returns the frame
  void Post(const ExchangeFrame& frame, Bytes body = {}) { queue_.push_back({frame, body, 0}); }

  // Sends as much as the connection has room for. Appends the frames that have been sent whole.
  // Returns: false  the other reader is gone
  bool Flush(std::vector<ExchangeFrame>& sent);

  // Receives what has arrived.
  // Returns: false  the other reader is gone, or has sent a malformed frame. No destination is
  //                 written afterwards
  bool Receive(const Receiver& receiver);

  bool has_waiting() const { return !queue_.empty(); }  // frames that Flush has not sent
  int socket() const { return socket_.get(); }
  // Of both directions. It grows as long as the other reader is at work.
  uint64_t moved_bytes() const { return moved_bytes_; }

  // Ends the connection, also for a forked child that has the socket, too.
  // Returns: the frames that were not sent, whose bodies are free now
  std::vector<ExchangeFrame> Close();

 private:
  struct QueuedFrame {
    ExchangeFrame frame;
    Bytes body;
    size_t sent_bytes = 0;  // of frame and body
  };

  bool TakeBytes(Bytes bytes, const Receiver& receiver);
  bool TakeHead(const Receiver& receiver);
  bool AdvanceBody(size_t bytes, const Receiver& receiver);

  UniqueFd socket_;
  std::deque<QueuedFrame> queue_;
  std::array<std::byte, sizeof(ExchangeFrame)> head_{};  // of the frame that is arriving
  size_t head_bytes_ = 0;
  MutableBytes body_rest_;    // of the reply that is arriving
  ExchangeFrame body_frame_;  // of that reply
  uint64_t moved_bytes_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINK_H_
