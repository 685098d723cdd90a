// lmdbio/load/slots/window.h - the shared memory where readers fill slots and ranks read them.
//
//   | ring of slots ...                                     | Control | rank states | slot states |
//   slot:  | shares [batches * ranks] | entries [records] | pages of the file, 4096-aligned      |
//
// Readers and ranks exchange counters, and never make a collective call. The word `ready` in the
// state of a slot announces the slot. A rank releases slots in order by counting them in its own
// state. A rank that waits for a slot spins for about a microsecond and then sleeps in an event
// count (ranks/shm/event_count.h); a reader that waits for space sleeps at once. A sleeper checks
// every 200 ms whether its peers still run. So a killed rank is an error on all ranks, and not an
// endless wait.
//
// Source: dissertation 3.2.2 (the shared buffer); docs/loader.md "The window".
#ifndef LMDBIO_LOAD_SLOTS_WINDOW_H_
#define LMDBIO_LOAD_SLOTS_WINDOW_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/plan/slot_head.h"
#include "lmdbio/ranks/shm/failure_cell.h"
#include "lmdbio/ranks/shm/peer_monitor.h"

namespace lmdbio::load {

struct WindowShape {
  int rank_count = 1;    // of the host
  int reader_count = 1;  // ranks 0 to reader_count - 1 of the host read
  uint64_t ring_bytes = 0;
};

// One rank's view of the window.
// Threads: the rank's own thread and, on a reader, the reading thread; each calls the methods of
//          its sections.
class Window {
 public:
  static constexpr uint64_t kSlotsMax = 64;    // announced and not yet released
  static constexpr size_t kBadRangesMax = 32;  // of one slot
  // The time between two looks at the other processes, of a rank that sleeps.
  static constexpr std::chrono::milliseconds kHealthCheckPeriod{200};
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 100);

  static uint64_t BytesNeeded(const WindowShape& shape);

  // memory    [BytesNeeded(shape)] zero-filled, shared by the ranks of the host; borrowed
  // rank      of this process on its host
  // job_rank  of this process in the whole job, for messages
  Window(MutableBytes memory, const WindowShape& shape, int rank, int job_rank);

  // Publishes the identity of this process. Followed by a barrier, then by WatchPeers.
  void Introduce();
  // Returns the job ranks whose end would not be noticed (ranks/shm/peer_monitor.h says why).
  std::vector<int> WatchPeers();

  const WindowShape& shape() const { return shape_; }
  MutableBytes ring() const { return ring_; }

  // --- Ranks ---

  // Sleeps until `slot` is announced and returns its head.
  // Errors: the failure that ended the stream (see Fail)
  //         kPeerFailed  a rank of this host has ended
  Result<SlotHead> AwaitSlot(uint64_t slot);
  // The same for `limit` at most; nothing if the slot was not announced by then.
  Result<std::optional<SlotHead>> AwaitSlot(uint64_t slot, std::chrono::milliseconds limit);

  // Looks for a failure that ended the stream. The end of a rank of this host is one.
  // Errors: as AwaitSlot
  Status CheckPeers();

  // Releases every slot before `slot_count`. Views into them are invalid from now on.
  void LetGo(uint64_t slot_count);

  // Whether a reader sleeps until this rank releases slots that it has not released yet. May be
  // false for a moment while the reader looks at its peers.
  bool IsAwaited() const;

  // This rank uses no slot from now on: it releases all, also those to come.
  void Leave();
  // Sleeps until every rank of the host has left; false if one has ended before, or `limit` has
  // passed.
  bool AwaitAllLeft(std::chrono::milliseconds limit);

  // --- Readers ---

  // Sleeps until all ranks have released the first `slot_count` slots. False if Wake was called.
  // Errors: as AwaitSlot
  Result<bool> AwaitSpace(uint64_t slot_count);
  // The same without sleeping. False once all ranks have left: nobody needs further slots, and the
  // memory of those in flight is not free.
  bool HasSpace(uint64_t slot_count) const;
  // Ends AwaitSpace of this process, now and later. Any thread.
  void Wake();

  // This reader has read its part of `slot`. True for the last reader: it sees the bytes of the
  // others, finishes the slot and announces it.
  bool FinishPart(uint64_t slot);
  void Announce(uint64_t slot, const SlotHead& head);

  // Records bytes of a slot that could not be read. False if there is no room for more.
  bool AddBadRange(uint64_t slot, const BadRange& range);
  // The bad ranges of all readers. Requires: FinishPart returned true
  std::vector<BadRange> TakeBadRanges(uint64_t slot);

  // --- Readers and ranks ---

  // Ends the stream for every rank of the host. The first error stays. Any thread.
  // kInOrder  ranks get the slots that were announced before; so all fail at the same slot
  // kNow      announced slots may be wrong: see UrgentFailure
  using When = ranks::FailureUrgency;
  void Fail(const Error& error, When when = When::kInOrder);
  // The error, if it was recorded with kNow.
  std::optional<Error> UrgentFailure();
  // The error that ended the stream: on the failed rank its own; on the others kPeerFailed with the
  // failed rank's number in front, and with its errno.
  std::optional<Error> Failure();

 private:
  struct WindowHeader;
  struct RankState;
  struct SlotState;

  SlotState& slot_state(uint64_t slot) const;
  uint64_t LeastLetGo() const;
  std::optional<Error> FindEndedPeer();
  Error ErrorHere(const ranks::RecordedFailure& failure) const;

  WindowShape shape_;
  int rank_;
  int job_rank_;
  WindowHeader* control_;
  ranks::FailureReader failure_;
  RankState* ranks_;
  SlotState* slots_;
  MutableBytes ring_;
  ranks::PeerMonitor peers_;
  std::atomic<bool> woken_{false};
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_WINDOW_H_
