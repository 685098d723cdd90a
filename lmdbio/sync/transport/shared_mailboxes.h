// lmdbio/sync/transport/shared_mailboxes.h - the ranks of a host exchange short messages in shared
// memory, and sleep until a peer wakes them.
//
// Each rank has a mailbox: two buffers, used in turn, and an event count. A meeting is an
// allgather: it is over when all ranks have arrived with their bytes, and the last rank to arrive
// wakes the sleepers. No rank can be two meetings ahead, so a buffer is read before it is written
// again.
//
// Source: dissertation 8.3.2 (what busy waiting costs); docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_TRANSPORT_SHARED_MAILBOXES_H_
#define LMDBIO_SYNC_TRANSPORT_SHARED_MAILBOXES_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::sync {

// Threads: one at a time in each rank; Ring of the own rank from any.
class SharedMailboxes {
 public:
  // The most bytes of one rank at one meeting.
  static constexpr size_t kPlaceBytes = 8 << 10;

  // Collective over the ranks of one host.
  // Errors: kResourceExhausted  no shared memory; kInternal
  static Result<std::unique_ptr<SharedMailboxes>> Create(ranks::Group& host);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Arrives at the next meeting.
  // bytes        [at most kPlaceBytes] of a message
  // total_bytes  of the whole message; the other ranks can read it
  // Requires: the last meeting is over
  void Come(Bytes bytes, uint64_t total_bytes);
  // Whether all ranks have arrived at the last meeting of this rank.
  bool is_over() const;
  // Yields the core a few times, then sleeps until all ranks have arrived, or for `limit`. Returns
  // is_over(). May return early.
  bool Await(std::chrono::milliseconds limit);
  // Requires: is_over(), and Come has not been called since
  Bytes BytesOf(int rank) const;
  uint64_t TotalBytesOf(int rank) const;

  // Sleeps until a rank wakes this one with Ring, or for `limit`. Returns at once if that happened
  // since the last call. May return early.
  // limit    rounded up to milliseconds
  // cause    kWakeUpOrArrival: also returns when another rank has arrived at the next meeting
  enum class WakeCause { kWakeUpOnly, kWakeUpOrArrival };
  void Sleep(std::chrono::microseconds limit, WakeCause cause);
  // Wakes a rank that sleeps in Sleep, or will sleep next. Any thread.
  void Ring(int rank);
  // Calls and wakes the ranks that have not arrived at this rank's meeting. Between two meetings it
  // calls all other ranks.
  void CallMissing();
  // Whether a peer called this rank since the last TakeCall.
  bool TakeCall();

  void Abandon() { memory_->Abandon(); }

 private:
  struct ArrivalState;
  struct Mailbox;
  SharedMailboxes() = default;
  ArrivalState& arrival_state() const;
  Mailbox& mailbox(int rank) const;
  void WakeListeners();

  int rank_ = 0;
  int size_ = 0;
  uint64_t came_count_ = 0;     // meetings at which this rank arrived
  uint32_t seen_wake_ups_ = 0;  // of Mailbox::wake_ups, at the end of the last Sleep
  std::unique_ptr<ranks::SharedMemory> memory_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_SHARED_MAILBOXES_H_
