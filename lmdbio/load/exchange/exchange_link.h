// lmdbio/load/exchange/exchange_link.h - requests and replies between two readers.
//
// A message is a frame. Behind the frame of a reply follow the bytes. They travel from the chunk of
// one reader to the destination of the other without another copy in this process.
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
static_assert(std::is_trivially_copyable_v<ExchangeFrame>);

// Threads: one at a time.
class ExchangeLink {
 public:
  // The destination of a reply; empty if the reply was not asked for.
  using PlaceOf = std::function<MutableBytes(const ExchangeFrame&)>;

  // socket  connected, does not block
  explicit ExchangeLink(UniqueFd socket) : socket_(std::move(socket)) {}

  // Queues a frame, and `body` behind it. Nothing is sent before Flush.
  // body  [frame.length_bytes, or empty] borrowed until Flush returns the frame
  void Post(const ExchangeFrame& frame, Bytes body = {}) { queue_.push_back({frame, body, 0}); }

  // Sends as much as the connection has room for. Appends the frames that have been sent whole.
  // Returns: false  the other reader is gone
  bool Flush(std::vector<ExchangeFrame>& sent);

  // Receives what has arrived, and appends the frames whose bodies are in place.
  // Returns: false  the other reader is gone, or has sent nonsense
  bool Receive(const PlaceOf& place_of, std::vector<ExchangeFrame>& received);

  bool has_waiting() const { return !queue_.empty(); }  // frames that Flush has not sent
  int socket() const { return socket_.get(); }

  // Drops the link. Returns the frames that were not sent, whose bodies are free now.
  std::vector<ExchangeFrame> Close();

 private:
  struct QueuedFrame {
    ExchangeFrame frame;
    Bytes body;
    size_t sent_bytes = 0;  // of frame and body
  };

  bool TakeBytes(Bytes bytes, const PlaceOf& place_of, std::vector<ExchangeFrame>& received);
  bool BeginBody(const PlaceOf& place_of, std::vector<ExchangeFrame>& received);
  void AdvanceBody(size_t bytes, std::vector<ExchangeFrame>& received);

  UniqueFd socket_;
  std::deque<QueuedFrame> queue_;
  std::array<std::byte, sizeof(ExchangeFrame)> head_{};  // of the frame that is arriving
  size_t head_bytes_ = 0;
  MutableBytes body_rest_;    // of the reply that is arriving
  ExchangeFrame body_frame_;  // of that reply
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_LINK_H_
