// lmdbio/load/slots/window.h - the shared memory where readers fill slots and ranks read them.
//
//   | Control | rank states | slot states | ring of slots ...                                     |
//   slot:  | shares [batches * ranks] | entries [records] | pages of the file, 4096-aligned      |
//
// Readers and ranks meet on counters, never in a collective call. A slot is announced by its number
// in the word `ready` of its state; a rank lets slots go in order by counting them in its own
// state. Whoever has to wait spins for a moment and then sleeps in the kernel on the word itself. A
// sleeper looks up now and then whether the others still live, so that a killed rank is an error
// for everybody and not an endless wait.
//
// Source: dissertation 3.2.2 (the shared buffer); docs/loader.md "The window".
#ifndef LMDBIO_LOAD_SLOTS_WINDOW_H_
#define LMDBIO_LOAD_SLOTS_WINDOW_H_

#include <array>
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
#include "lmdbio/ranks/shm/peer_monitor.h"

namespace lmdbio::load {

struct WindowShape {
  int rank_count = 1;    // of the host
  int reader_count = 1;  // ranks 0 to reader_count - 1 of the host read
  uint64_t ring_bytes = 0;
};

// One rank's view of the window. Threads: the rank's own and, on a reader, the reading thread; each
// calls what its section says.
class Window {
 public:
  static constexpr uint64_t kSlotsMax = 64;    // announced and not yet let go
  static constexpr size_t kBadRangesMax = 32;  // of one slot
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 100);

  static uint64_t BytesNeeded(const WindowShape& shape);

  // memory  [BytesNeeded(shape)] zero-filled, shared by the ranks of the host; borrowed
  // rank    of this process on its host
  // name    of this process in messages: its rank in the whole job
  Window(MutableBytes memory, const WindowShape& shape, int rank, int job_rank);

  // Makes this rank known to the others. Followed by a barrier, then by WatchPeers.
  void Introduce();
  // Returns the job ranks whose end would not be noticed (ranks/shm/peer_monitor.h says why).
  std::vector<int> WatchPeers();

  const WindowShape& shape() const { return shape_; }
  MutableBytes ring() const { return ring_; }

  // --- Ranks ---

  // Sleeps until `slot` is announced and returns its head.
  // Errors: what ended the stream (see Fail); kPeerFailed  a rank of this host is gone
  Result<SlotHead> AwaitSlot(uint64_t slot);
  // The same for a time at most; nothing if the slot was not announced by then.
  Result<std::optional<SlotHead>> AwaitSlot(uint64_t slot, std::chrono::milliseconds limit);

  // Lets go of every slot before `slot_count`. Views into them are dead from now on.
  void LetGo(uint64_t slot_count);

  // This rank asks for nothing more and lets go of everything, also of slots to come.
  void Leave();
  // Sleeps until every rank of the host has left; false if one is gone, or `limit` has passed.
  bool AwaitAllLeft(std::chrono::seconds limit);

  // --- Readers ---

  // Sleeps until all ranks have let go of the first `slot_count` slots. False if Wake was called.
  // Errors: as AwaitSlot
  Result<bool> AwaitSpace(uint64_t slot_count);
  // The same without sleeping.
  bool HasSpace(uint64_t slot_count) const;
  // Ends AwaitSpace of this process. Any thread.
  void Wake();

  // A reader has read its part of `slot`. True for the last of them, who then finishes the slot and
  // announces it. What the other readers wrote is visible to it.
  bool FinishPart(uint64_t slot);
  void Announce(uint64_t slot, const SlotHead& head);

  // Notes bytes of a slot that could not be read. False if there is no room for more.
  bool AddBadRange(uint64_t slot, const BadRange& range);
  // Those of all readers. Requires: FinishPart returned true
  std::vector<BadRange> TakeBadRanges(uint64_t slot);

  // --- Everybody ---

  // Ends the stream for every rank of the host. The first error stays. Any thread.
  // kInOrder  ranks get what was announced before; so all of them get the error at the same slot
  // kNow      what was announced may be wrong: see UrgentFailure
  enum class When { kInOrder, kNow };
  void Fail(const Error& error, When when = When::kInOrder);
  // The error, if it was to come now.
  std::optional<Error> UrgentFailure() const;
  // The error that ended the stream, in the words for this rank: its own error, or kPeerFailed.
  std::optional<Error> Failure() const;

 private:
  struct WindowHeader;
  struct RankState;
  struct SlotState;

  SlotState& slot_state(uint64_t slot) const;
  uint64_t LeastLetGo() const;
  std::optional<Error> LookForTheGone();

  WindowShape shape_;
  int rank_;
  int job_rank_;
  WindowHeader* control_;
  RankState* ranks_;
  SlotState* slots_;
  MutableBytes ring_;
  ranks::PeerMonitor peers_;
  std::atomic<bool> woken_{false};
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_WINDOW_H_
