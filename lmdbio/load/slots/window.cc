#include "lmdbio/load/slots/window.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/event_count.h"

// The conditions of all waits are sequentially consistent atomics, as EventCount requires. The
// first event count is that of a slot: `ready` has another value, or the failure is recorded. The
// second is that of space: the ranks released slots, Wake was called, or the failure is recorded.

namespace lmdbio::load {
namespace {

constexpr int kSpinsMax = 200;
constexpr uint64_t kEverything = std::numeric_limits<uint64_t>::max();

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The value of `ready` that announces a slot. It is never 0, and differs from that of the slot
// which used the state before.
uint32_t ReadyWord(uint64_t slot) { return static_cast<uint32_t>(slot / Window::kSlotsMax + 1); }

// The begin of the states, behind the ring.
uint64_t StatesAt(const WindowShape& shape) { return AlignUp(shape.ring_bytes, MemoryPageBytes()); }

}  // namespace

struct alignas(kCacheLineBytes) Window::WindowHeader {
  ranks::FailureCell failure;
  alignas(kCacheLineBytes) ranks::EventCount space;  // of readers, until ranks release slots
};

struct alignas(kCacheLineBytes) Window::RankState {
  std::atomic<uint64_t> let_go;  // released slots; kEverything once the rank has left
  std::atomic<uint64_t> wanted;  // of a sleeping reader: slots to be released; else 0
  ranks::ProcessIdentity process;
  int32_t job_rank;
};

struct alignas(kCacheLineBytes) Window::SlotState {
  std::atomic<uint32_t> ready;
  ranks::EventCount announced;
  std::atomic<uint32_t> parts_done;
  std::atomic<uint32_t> bad_count;
  SlotHead head;
  std::array<BadRange, kBadRangesMax> bad;
};

uint64_t Window::BytesNeeded(const WindowShape& shape) {
  const uint64_t states = sizeof(WindowHeader) +
                          sizeof(RankState) * static_cast<uint64_t>(shape.rank_count) +
                          sizeof(SlotState) * kSlotsMax;
  return StatesAt(shape) + AlignUp(states, MemoryPageBytes());
}

// The ring comes first, so that it begins with a huge page if the memory does. Zero bytes are a
// valid start of every state: no slot announced, nothing released, no failure.
Window::Window(MutableBytes memory, const WindowShape& shape, int rank, int job_rank)
    : shape_(shape),
      rank_(rank),
      job_rank_(job_rank),
      control_(std::launder(reinterpret_cast<WindowHeader*>(memory.data() + StatesAt(shape)))),
      failure_(control_->failure) {
  LMDBIO_CHECK(memory.size() >= BytesNeeded(shape));
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  std::byte* at = reinterpret_cast<std::byte*>(control_) + sizeof(WindowHeader);
  ranks_ = std::launder(reinterpret_cast<RankState*>(at));
  at += sizeof(RankState) * static_cast<size_t>(shape.rank_count);
  slots_ = std::launder(reinterpret_cast<SlotState*>(at));
  ring_ = memory.first(shape.ring_bytes);
}

Window::SlotState& Window::slot_state(uint64_t slot) const { return slots_[slot % kSlotsMax]; }

void Window::Introduce() {
  ranks_[rank_].job_rank = job_rank_;
  ranks_[rank_].process = ranks::OwnIdentity();
}

std::vector<int> Window::WatchPeers() {
  std::vector<int> unwatched;
  for (int i = 0; i < shape_.rank_count; ++i) {
    if (!peers_.Add(ranks_[i].process)) unwatched.push_back(ranks_[i].job_rank);
  }
  return unwatched;
}

// The failure of the stream, or one that this rank finds and records: a peer that has ended.
Status Window::CheckPeers() {
  if (std::optional<Error> failure = Failure()) return lmdbio::Fail(std::move(*failure));
  std::optional<Error> ended = FindEndedPeer();
  if (!ended) return {};
  Fail(*ended);
  return lmdbio::Fail(std::move(*ended));
}

std::optional<Error> Window::FindEndedPeer() {
  for (size_t next = 0;;) {
    const std::optional<size_t> gone = peers_.FindGone(next);
    if (!gone) return std::nullopt;
    const RankState& rank = ranks_[*gone];
    // A rank that has left may end. The others are still needed.
    if (rank.let_go.load() != kEverything) {
      return Error(ErrorCode::kPeerFailed,
                   fmt::format("rank {} (process {}) has ended unexpectedly", rank.job_rank,
                               rank.process.pid));
    }
    next = *gone + 1;
  }
}

Result<SlotHead> Window::AwaitSlot(uint64_t slot) {
  LMDBIO_TRY(const std::optional<SlotHead> head, AwaitSlot(slot, kNoLimit));
  LMDBIO_CHECK(head.has_value());
  return *head;
}

Result<std::optional<SlotHead>> Window::AwaitSlot(uint64_t slot, std::chrono::milliseconds limit) {
  SlotState& state = slot_state(slot);
  const uint32_t wanted = ReadyWord(slot);
  for (int i = 0; i < kSpinsMax; ++i) {
    // Pairs with the store in Announce: the head, the entries and the pages are visible then.
    if (state.ready.load(std::memory_order_acquire) == wanted) return state.head;
    Relax();
  }
  const auto give_up = std::chrono::steady_clock::now() + limit;
  const auto is_over = [&] {
    return state.ready.load() == wanted || control_->failure.is_recorded();
  };
  while (true) {
    // The condition is looked at before the limit, so a limit of 0 finds a slot that is there.
    const auto now = std::chrono::steady_clock::now();
    state.announced.WaitUnless(is_over, std::min(give_up, now + kHealthCheckPeriod));
    if (state.ready.load() == wanted) return state.head;
    LMDBIO_TRY_VOID(CheckPeers());
    if (now >= give_up) return std::nullopt;
  }
}

uint64_t Window::LeastLetGo() const {
  uint64_t least = kEverything;
  for (int i = 0; i < shape_.rank_count; ++i) least = std::min(least, ranks_[i].let_go.load());
  return least;
}

// A reader stores `wanted` before it announces that it sleeps, and looks at every `let_go` after
// that. So a release either finds the reader's `wanted`, or the reader sees the release. If several
// ranks release at once, the last of them in the total order sees all numbers.
void Window::LetGo(uint64_t slot_count) {
  ranks_[rank_].let_go.store(slot_count);
  if (!control_->space.has_sleepers()) return;
  // Only the last rank to release a slot wakes the readers. Earlier wake-ups would be in vain.
  const uint64_t least = LeastLetGo();
  for (int i = 0; i < shape_.reader_count; ++i) {
    const uint64_t wanted = ranks_[i].wanted.load();
    if (wanted == 0 || wanted > least) continue;
    control_->space.Notify();
    return;
  }
}

bool Window::IsAwaited() const {
  const uint64_t let_go = ranks_[rank_].let_go.load();
  for (int i = 0; i < shape_.reader_count; ++i) {
    if (ranks_[i].wanted.load() > let_go) return true;
  }
  return false;
}

void Window::Leave() {
  LetGo(kEverything);
  control_->space.Notify();
}

bool Window::AwaitAllLeft(std::chrono::milliseconds limit) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  const auto have_all_left = [this] { return LeastLetGo() == kEverything; };
  while (!have_all_left()) {
    control_->space.WaitUnless(have_all_left, kHealthCheckPeriod);
    if (FindEndedPeer() || std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

// A slot that ranks release has been finished. Ranks that leave release slots that are still read
// or checked, so when all have left, nothing may be read into that memory.
bool Window::HasSpace(uint64_t slot_count) const {
  const uint64_t least = LeastLetGo();
  return least >= slot_count && least != kEverything;
}

Result<bool> Window::AwaitSpace(uint64_t slot_count) {
  const auto is_over = [&] {
    return HasSpace(slot_count) || woken_.load() || control_->failure.is_recorded();
  };
  while (!HasSpace(slot_count)) {
    if (woken_.load()) return false;
    ranks_[rank_].wanted.store(slot_count);
    control_->space.WaitUnless(is_over, kHealthCheckPeriod);
    ranks_[rank_].wanted.store(0);
    LMDBIO_TRY_VOID(CheckPeers());
  }
  return !woken_.load();
}

void Window::Wake() {
  woken_.store(true);
  control_->space.Notify();
}

// The additions to parts_done are in one total order. So the reader that adds last sees the pages
// and bad ranges that the other readers wrote before their additions.
bool Window::FinishPart(uint64_t slot) {
  SlotState& state = slot_state(slot);
  if (state.parts_done.fetch_add(1) + 1 < static_cast<uint32_t>(shape_.reader_count)) return false;
  state.parts_done.store(0);
  return true;
}

void Window::Announce(uint64_t slot, const SlotHead& head) {
  SlotState& state = slot_state(slot);
  // The head comes first, because `ready` makes it visible.
  state.head = head;
  state.ready.store(ReadyWord(slot));
  state.announced.Notify();
}

bool Window::AddBadRange(uint64_t slot, const BadRange& range) {
  SlotState& state = slot_state(slot);
  const uint32_t index = state.bad_count.fetch_add(1);
  if (index >= kBadRangesMax) return false;
  state.bad[index] = range;  // read after FinishPart, which orders it
  return true;
}

std::vector<BadRange> Window::TakeBadRanges(uint64_t slot) {
  SlotState& state = slot_state(slot);
  const uint32_t count = std::min<uint32_t>(state.bad_count.load(), kBadRangesMax);
  std::vector<BadRange> ranges(state.bad.begin(), state.bad.begin() + count);
  state.bad_count.store(0);
  return ranges;
}

void Window::Fail(const Error& error, When when) {
  if (!control_->failure.Record(error, job_rank_, when)) return;
  // Ranks may sleep on different slots, so all of them are woken.
  for (uint64_t i = 0; i < kSlotsMax; ++i) slots_[i].announced.Notify();
  control_->space.Notify();
}

std::optional<Error> Window::UrgentFailure() {
  const std::optional<ranks::RecordedFailure> failure = failure_.Look();
  if (!failure || failure->urgency != When::kNow) return std::nullopt;
  return ErrorHere(*failure);
}

std::optional<Error> Window::Failure() {
  const std::optional<ranks::RecordedFailure> failure = failure_.Look();
  if (!failure) return std::nullopt;
  return ErrorHere(*failure);
}

// A rank gets its own error back. The message of a kPeerFailed names the failed rank already.
Error Window::ErrorHere(const ranks::RecordedFailure& failure) const {
  if (failure.rank == job_rank_ || failure.code == ErrorCode::kPeerFailed) {
    return Error(failure.code, failure.text, failure.error_number);
  }
  return Error(ErrorCode::kPeerFailed, fmt::format("rank {}: {}", failure.rank, failure.text),
               failure.error_number);
}

}  // namespace lmdbio::load
