// lmdbio/sync/transport/shared_mailboxes.h - where the ranks of a host show each other what they
// bring, and sleep.
//
// Memory that they share: for each rank two places to lay bytes down, used in turn, and a bell. A
// meeting is over when all ranks have come; who comes last wakes those that sleep. Nobody can be
// two meetings ahead, so what lies in a place is read before it is written again.
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

// Threads: one at a time in each rank; Ring of its own bell from any.
class SharedMailboxes {
 public:
  // Of the bytes that a rank can bring to one meeting.
  static constexpr size_t kPlaceBytes = 8 << 10;

  // Collective over the ranks of one host.
  // Errors: kResourceExhausted  no shared memory; kInternal
  static Result<std::unique_ptr<SharedMailboxes>> Create(ranks::Group& host);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Comes to the next meeting.
  // bytes        [at most kPlaceBytes] of a message
  // total_bytes  of the whole message, for the others to know
  // Requires: the last meeting is over
  void Come(Bytes bytes, uint64_t total_bytes);
  // Whether all have come.
  bool is_over() const;
  // Sleeps until all have come, or so long. Looks a few times before, giving up its core.
  bool Await(std::chrono::milliseconds limit);
  // Requires: is_over(), and Come has not been called since
  Bytes BytesOf(int rank) const;
  uint64_t TotalBytesOf(int rank) const;

  // Sleeps until this rank's bell rings, or so long; at once if it has rung since the last call.
  // listens  also when another rank comes to a meeting
  enum class Listens { kToBell, kToArrivals };
  void Sleep(std::chrono::microseconds limit, Listens listens);
  // Rings a bell. Any thread.
  void Ring(int rank);
  // Calls the ranks that have not come to the meeting of this rank; all, if it is in none.
  void CallMissing();
  // Whether this rank was called since the last call.
  bool TakeCall();

  void Abandon() { memory_->Abandon(); }

 private:
  struct ArrivalState;
  struct Mailbox;
  SharedMailboxes() = default;
  ArrivalState& meeting() const;
  Mailbox& place(int rank) const;
  void RingListeners();

  int rank_ = 0;
  int size_ = 0;
  uint64_t came_count_ = 0;  // meetings that this rank has come to
  uint32_t heard_ = 0;       // rings of this rank's bell
  std::unique_ptr<ranks::SharedMemory> memory_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_SHARED_MAILBOXES_H_
