// lmdbio/sync/over_memory/host_segment.h - where the ranks of one host lay down what the others are
// to see, and how they wait for each other.
//
// Shared memory, one part for each rank:
//
//   post 0, post 1    used by calls of even and odd number: what the rank means, how far it has
//                     come, and a slot for the bytes of a small call, all in one run of cache lines
//   buffers           used in turn, chunk after chunk, call after call, for what a slot cannot hold
//
// A rank that has come to call n has seen all others come to call n - 1, so they are done with call
// n - 2, whose post it writes over now. It tells how far it has come by one number that only
// grows: the call, and the step within it. The others look at that number, and at nothing else,
// until they may read what was written before it.
//
// Work of a call that any rank can do is taken piece by piece by those that run. Who does the last
// piece writes the numbers of all: a rank that waits for a core meanwhile holds nobody up.
//
// Nobody makes a system call but to yield while nobody sleeps. Who sleeps says for which number it
// waits; the last to reach it rings.
//
// Source: docs/collectives.md "Shared memory".
#ifndef LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_
#define LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/base/types.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_memory/yield_backoff.h"

namespace lmdbio::sync {

struct HostSegmentShape {
  int rank_count = 1;
  uint64_t slot_bytes = 0;    // of a small call
  uint64_t buffer_bytes = 0;  // a multiple of 64
};

// What a rank means by its call.
struct CallHeader {
  uint64_t digest = 0;   // the tag's
  uint64_t meaning = 0;  // of the kind of call and its sizes
  uint64_t place = 0;    // 0, or 1 + where in its registered memory the values lie
};

// Threads: as Collectives.
class HostSegment {
 public:
  static constexpr uint32_t kLag = 1;             // steps that a rank may be ahead of another
  static constexpr uint32_t kBuffers = 3 * kLag;  // written, combined and read: kLag of each

  static uint64_t BytesNeeded(const HostSegmentShape& shape);

  // memory  [BytesNeeded] zero-filled, or as other ranks have left it
  HostSegment(MutableBytes memory, const HostSegmentShape& shape, int rank, WaitMode wait,
              ranks::Health& health);

  int rank() const { return rank_; }
  int size() const { return shape_.rank_count; }
  uint64_t slot_bytes() const { return shape_.slot_bytes; }
  uint64_t buffer_bytes() const { return shape_.buffer_bytes; }

  // The next call begins here: from now on slots and steps are its own.
  // Errors: kPeerFailed  a rank has stopped
  Status Begin();

  // For this call's bytes. One's own may be written between Begin and Arrive, others' may be read
  // once all have arrived.
  std::byte* SlotOf(int rank) const;

  // Chunk `chunk` of this call, in rank `rank`'s memory. Kept from call to call: see Finish.
  std::byte* BufferOf(int rank, uint64_t chunk) const;

  // Step 0: this rank has come, and means this. Of `tag` it tells whether it declines.
  void Arrive(const CallTag& tag, const CallHeader& mine);
  // This rank has done step `step`.
  void Publish(uint32_t step);

  // Waits until all have done step `step`; then what they wrote before can be read.
  // Errors: kPeerFailed  a rank is gone or has stopped; names it
  Status Await(uint32_t step);

  // This call's work for all ranks, in `piece_count` pieces, the same number on all of them: the
  // next one that nobody has taken, or none. Fewer than 2^kPieceBits; one kind of work in a call.
  // Requires: Await(0)
  static constexpr int kPieceBits = 24;
  std::optional<uint64_t> TakePiece(uint64_t piece_count);
  // This rank has done a piece that it took. With the last of them all ranks have done step `step`,
  // which none of them publishes.
  void FinishPiece(uint64_t piece_count, uint32_t step);

  // Whether all mean the same. Requires: Await(0)
  CallOutcome Outcome() const;
  const CallHeader& HeaderOf(int rank) const;

  // The call is over, and has used `chunk_count` chunks on every rank.
  void Finish(uint64_t chunk_count) { first_chunk_ += chunk_count; }

  // Tells the health that this rank lives, now and then; for calls that take long without a wait.
  // Errors: kPeerFailed
  Status KeepAlive();

  void Stop(const Error& why);

  // Waits for the others to leave, too, for at most some seconds. Returns whether all have left in
  // peace; then the memory may be given back together. All get the same answer.
  bool LeaveInPeace();

 private:
  struct SegmentHeader;
  struct Sleeper;
  struct Post;

  SegmentHeader& control() const;
  Sleeper& SleeperOf(int rank) const;
  Post& PostOf(int rank, uint64_t parity) const;
  uint64_t ValueOf(uint32_t step) const { return call_ << 32 | (uint64_t{step} + 1); }
  bool HaveReached(uint64_t value, std::memory_order order) const;
  bool LookFor(uint64_t value) const;
  Status AwaitLong(uint64_t value);
  bool YieldUntil(uint64_t value);
  Status SleepUntil(uint64_t value);
  void Reach(uint64_t value);
  std::optional<uint64_t> CountUp(std::atomic<uint64_t>& counter, uint64_t limit) const;
  void RingSleepers();
  void Ring(int rank);
  Error StopError() const;
  void StopSaying(const std::string& words);

  HostSegmentShape shape_;
  int rank_;
  WaitMode wait_;
  ranks::Health& health_;
  std::byte* memory_;
  uint64_t post_bytes_;
  std::byte* posts_;
  std::byte* buffers_;
  uint64_t call_ = 0;
  uint64_t first_chunk_ = 0;
  int look_count_;  // of the next wait, before it gives up the core
  YieldBackoff yield_pauses_;
  std::chrono::steady_clock::time_point checked_at_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_
