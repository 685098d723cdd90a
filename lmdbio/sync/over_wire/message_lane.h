// lmdbio/sync/over_wire/message_lane.h - the messages in one direction of a connection.
//
// A stream of bytes has no borders between messages; both ranks know the size of each one. A lane
// tells a system call which memory comes next, and counts the messages that are done.
//
// Threads: one.
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_MESSAGE_LANE_H_
#define LMDBIO_SYNC_OVER_WIRE_MESSAGE_LANE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::sync {

// A rank that sends until there is no room sends for as long as its peer receives, and then the
// peer sends nothing. So a rank sends and receives no more than this in turn, and both directions
// flow.
constexpr size_t kBytesPerTurn = 128 << 10;

struct PendingTransfer {
  std::byte* data = nullptr;
  size_t left_bytes = 0;
};

struct MessageLane {
  UniqueFd socket;                        // empty until the link is open
  std::deque<PendingTransfer> transfers;  // not done; the first may have begun
  uint64_t done_count = 0;                // done, and not awaited

  // A message follows the others. One without bytes is done at once, but not before those ahead.
  void Push(std::byte* data, size_t bytes);
  // So many bytes were sent or received.
  void Advance(size_t bytes);

  struct NextVectors {
    size_t count = 0;
    size_t bytes = 0;  // of all of them
  };
  // Fills in the memory of the next turn.
  NextVectors FillVectors(std::span<iovec> vectors) const;

 private:
  void CountDone();
};

// Bytes that were received before their message was expected. While there are some, no message is
// expected.
class ReadAhead {
 public:
  static constexpr size_t kBytesMax = 4096;

  // Memory for the bytes behind the expected ones. Requires: there are no bytes here
  iovec Room();
  // So many bytes were received into it. bytes  [at most kBytesMax]
  void Take(size_t bytes);
  // Moves bytes to the expected messages.
  void MoveTo(MessageLane& lane);

 private:
  std::vector<std::byte> memory_;
  Bytes left_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_MESSAGE_LANE_H_
