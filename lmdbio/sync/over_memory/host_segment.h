// lmdbio/sync/over_memory/host_segment.h - the shared memory of the ranks of one host: their bytes,
// their progress, and how they wait for each other.
//
// Each rank has a part of the memory:
//
//   post 0, post 1    for calls of even and odd number; each in one run of cache lines: the
//                     progress of the rank, the header of its call, and a slot for the bytes of a
//                     small call
//   buffers           for the chunks of larger calls; used in turn, also from call to call
//
// A rank publishes its progress as one number that only grows: the call, and the step within it.
// The other ranks read that number only, until they may read the bytes that were written before it.
//
// Two posts are enough. A rank that arrives at call n has seen all others arrive at call n - 1. So
// they have finished call n - 2, whose post the rank now overwrites.
//
// Some work of a call can be done by any rank. The ranks that run take it item by item. The rank
// that completes the last item publishes the step for all ranks. So a rank that waits for a core
// delays no other.
//
// While no rank sleeps, no rank makes a system call other than sched_yield. A sleeper stores the
// number that it waits for, and the last rank to reach it wakes the sleeper.
//
// Source: docs/collectives.md "Shared memory".
#ifndef LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_
#define LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "lmdbio/base/types.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/shm/failure_cell.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/yield_backoff.h"

namespace lmdbio::sync {

struct HostSegmentShape {
  int rank_count = 1;
  uint64_t slot_bytes = 0;    // the most bytes of a small call
  uint64_t buffer_bytes = 0;  // a multiple of 64
};

// The parameters of a rank's call, which the other ranks compare with their own.
struct CallHeader {
  uint64_t digest = 0;   // of the tag
  uint64_t meaning = 0;  // digest of the kind of call and its sizes
  uint64_t place = 0;    // 1 + the offset of the values in registered memory; 0: they are elsewhere
};

// Threads: as Collectives.
class HostSegment {
 public:
  static constexpr uint32_t kLag = 1;             // steps that a rank may be ahead of another
  static constexpr uint32_t kBuffers = 3 * kLag;  // written, combined and read: kLag of each

  static uint64_t BytesNeeded(const HostSegmentShape& shape);

  // memory  [BytesNeeded] zero-filled before the first rank uses it; borrowed
  HostSegment(MutableBytes memory, const HostSegmentShape& shape, int rank, WaitMode wait,
              ranks::Health& health);

  int rank() const { return rank_; }
  int size() const { return shape_.rank_count; }
  uint64_t slot_bytes() const { return shape_.slot_bytes; }
  uint64_t buffer_bytes() const { return shape_.buffer_bytes; }

  // Begins the next call. Slots and steps are those of this call from now on.
  // Errors: kPeerFailed  a rank has stopped; the first failure
  Status Begin();

  // The bytes of a rank in this call. The own slot may be written between Begin and Arrive; the
  // other slots may be read after Await(0).
  std::byte* SlotOf(int rank) const;

  // The buffer of chunk `chunk` of this call, in the memory of `rank`. Calls use the buffers in
  // turn (Finish).
  std::byte* BufferOf(int rank, uint64_t chunk) const;

  // Step 0: publishes that this rank has arrived, with its header, and whether `tag` declines.
  void Arrive(const CallTag& tag, const CallHeader& mine);
  // Publishes that this rank has done step `step`.
  void Publish(uint32_t step);

  // Waits until all ranks have done step `step`. Then the bytes that they wrote before it can be
  // read.
  // Errors: kPeerFailed  a rank has ended or stopped; names it
  Status Await(uint32_t step);

  // Work items of this call, which any rank can do: takes the next one; nothing if all are taken.
  // A call has one list of items.
  // piece_count  [< 2^kPieceBits; the same on every rank]
  // Requires: Await(0)
  static constexpr int kPieceBits = 24;
  std::optional<uint64_t> TakePiece(uint64_t piece_count);
  // This rank has done an item that it took. With the last item, all ranks count as having done
  // step `step`; no rank publishes that step.
  void FinishPiece(uint64_t piece_count, uint32_t step);

  // kDone if the headers of all ranks agree and no rank declines. Requires: Await(0)
  CallOutcome Outcome() const;
  const CallHeader& HeaderOf(int rank) const;

  // Ends the call, which has used `chunk_count` chunks on every rank.
  void Finish(uint64_t chunk_count) { first_chunk_ += chunk_count; }

  // Checks the health of the job, at most every kHealthNap. For work that takes long without a
  // wait.
  // Errors: kPeerFailed  a rank has ended or stopped; names it
  Status KeepAlive();

  // Records `why` as the failure of all ranks, and wakes them. The first failure stays.
  void Stop(const Error& why);

  // Waits for the others to leave, for at most 5 s, and not if the health of the job fails. True if
  // all have left without a failure: the ranks may release the memory collectively. All ranks get
  // the same answer.
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
  Status SleepUntil(uint64_t value);
  void Reach(uint64_t value);
  std::optional<uint64_t> CountUp(std::atomic<uint64_t>& counter, uint64_t limit) const;
  void WakeSleepers();
  void RecordStop(const Error& why);
  Status CheckStopped();

  HostSegmentShape shape_;
  int rank_;
  WaitMode wait_;
  ranks::Health& health_;
  std::byte* memory_;
  ranks::FailureReader failure_;
  uint64_t post_bytes_;
  std::byte* posts_;
  std::byte* buffers_;
  uint64_t call_ = 0;
  uint64_t first_chunk_ = 0;
  int look_count_;  // of the next wait, before it yields the core
  YieldBackoff yield_pauses_;
  std::chrono::steady_clock::time_point checked_at_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_HOST_SEGMENT_H_
