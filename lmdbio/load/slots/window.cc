#include "lmdbio/load/slots/window.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/futex.h"

// The protocol, and why no wake-up is lost: a sleeper first raises its waiter count, then looks
// again, then sleeps on a word whose value the kernel compares once more. The other side first
// changes what is looked at, then looks at the waiter count. All four are sequentially consistent,
// so at least one side sees the other.

namespace lmdbio::load {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr uint64_t kPageBytes = 4096;
constexpr size_t kMessageBytesMax = 2048;
constexpr int kSpinsMax = 200;
// How long a sleeper sleeps before it looks whether the others still live.
constexpr auto kLookUp = std::chrono::milliseconds(200);
constexpr uint64_t kEverything = std::numeric_limits<uint64_t>::max();

enum FailureState : uint32_t { kNoFailure = 0, kWriting = 1, kReadable = 2 };

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The word that announces a slot: never 0, and another one when the state is used again.
uint32_t ReadyWord(uint64_t slot) { return static_cast<uint32_t>(slot / Window::kSlotsMax + 1); }

}  // namespace

struct alignas(kCacheLineBytes) Window::WindowHeader {
  std::atomic<uint32_t> failure;
  int32_t failed_rank;
  bool is_urgent;
  int32_t code;
  int32_t error_number;
  uint32_t message_bytes;
  std::array<char, kMessageBytesMax> message;

  // Readers sleep here until slots are let go.
  alignas(kCacheLineBytes) std::atomic<uint32_t> space_event;
  std::atomic<uint32_t> space_waiters;
};

struct alignas(kCacheLineBytes) Window::RankState {
  std::atomic<uint64_t> let_go;  // slots; kEverything once the rank has left
  std::atomic<uint64_t> wanted;  // a sleeping reader: slots that must be let go; else 0
  ranks::ProcessIdentity process;
  int32_t job_rank;
};

struct alignas(kCacheLineBytes) Window::SlotState {
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> waiters;
  std::atomic<uint32_t> parts_done;
  std::atomic<uint32_t> bad_count;
  SlotHead head;
  std::array<BadRange, kBadRangesMax> bad;
};

uint64_t Window::BytesNeeded(const WindowShape& shape) {
  const uint64_t states = sizeof(WindowHeader) +
                          sizeof(RankState) * static_cast<uint64_t>(shape.rank_count) +
                          sizeof(SlotState) * kSlotsMax;
  return (states + kPageBytes - 1) / kPageBytes * kPageBytes + shape.ring_bytes;
}

// Zero bytes are a valid start of every state: no slot announced, nothing let go, no failure.
Window::Window(MutableBytes memory, const WindowShape& shape, int rank, int job_rank)
    : shape_(shape), rank_(rank), job_rank_(job_rank) {
  LMDBIO_CHECK(memory.size() >= BytesNeeded(shape));
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  std::byte* at = memory.data();
  control_ = std::launder(reinterpret_cast<WindowHeader*>(at));
  at += sizeof(WindowHeader);
  ranks_ = std::launder(reinterpret_cast<RankState*>(at));
  at += sizeof(RankState) * static_cast<size_t>(shape.rank_count);
  slots_ = std::launder(reinterpret_cast<SlotState*>(at));
  ring_ = memory.subspan(BytesNeeded(shape) - shape.ring_bytes, shape.ring_bytes);
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

std::optional<Error> Window::LookForTheGone() {
  for (size_t next = 0;;) {
    const std::optional<size_t> gone = peers_.FindGone(next);
    if (!gone) return std::nullopt;
    const RankState& rank = ranks_[*gone];
    // A rank that has left may go; the others still needed it.
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
    if (state.ready.load(std::memory_order_acquire) == wanted) return state.head;
    Relax();
  }
  const auto give_up = std::chrono::steady_clock::now() + limit;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
    state.waiters.fetch_add(1);
    const uint32_t seen = state.ready.load();
    if (seen != wanted && control_->failure.load() != kReadable && left.count() > 0) {
      FutexWait(state.ready, seen, std::min(left, kLookUp));
    }
    state.waiters.fetch_sub(1);
    if (state.ready.load() == wanted) return state.head;
    if (std::optional<Error> failure = Failure()) return lmdbio::Fail(std::move(*failure));
    if (std::optional<Error> gone = LookForTheGone()) {
      Fail(*gone);
      return lmdbio::Fail(std::move(*gone));
    }
    if (left.count() <= 0) return std::nullopt;
  }
}

uint64_t Window::LeastLetGo() const {
  uint64_t least = kEverything;
  for (int i = 0; i < shape_.rank_count; ++i) least = std::min(least, ranks_[i].let_go.load());
  return least;
}

void Window::LetGo(uint64_t slot_count) {
  ranks_[rank_].let_go.store(slot_count);
  if (control_->space_waiters.load() == 0) return;
  // Only the last rank to let go wakes the readers: the others would wake them for nothing.
  const uint64_t least = LeastLetGo();
  for (int i = 0; i < shape_.reader_count; ++i) {
    const uint64_t wanted = ranks_[i].wanted.load();
    if (wanted == 0 || wanted > least) continue;
    control_->space_event.fetch_add(1);
    FutexWake(control_->space_event);
    return;
  }
}

void Window::Leave() {
  LetGo(kEverything);
  control_->space_event.fetch_add(1);
  FutexWake(control_->space_event);
}

bool Window::AwaitAllLeft(std::chrono::seconds limit) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  while (LeastLetGo() != kEverything) {
    const uint32_t event = control_->space_event.load();
    if (LeastLetGo() == kEverything) break;
    FutexWait(control_->space_event, event, kLookUp);
    if (LookForTheGone() || std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

bool Window::HasSpace(uint64_t slot_count) const { return LeastLetGo() >= slot_count; }

Result<bool> Window::AwaitSpace(uint64_t slot_count) {
  while (!HasSpace(slot_count)) {
    if (woken_.load()) return false;
    const uint32_t event = control_->space_event.load();
    ranks_[rank_].wanted.store(slot_count);
    control_->space_waiters.fetch_add(1);
    if (!HasSpace(slot_count) && !woken_.load() && control_->failure.load() != kReadable) {
      FutexWait(control_->space_event, event, kLookUp);
    }
    control_->space_waiters.fetch_sub(1);
    ranks_[rank_].wanted.store(0);
    if (std::optional<Error> failure = Failure()) return lmdbio::Fail(std::move(*failure));
    if (std::optional<Error> gone = LookForTheGone()) {
      Fail(*gone);
      return lmdbio::Fail(std::move(*gone));
    }
  }
  return !woken_.load();
}

void Window::Wake() {
  woken_.store(true);
  control_->space_event.fetch_add(1);
  FutexWake(control_->space_event);
}

bool Window::FinishPart(uint64_t slot) {
  SlotState& state = slot_state(slot);
  if (state.parts_done.fetch_add(1) + 1 < static_cast<uint32_t>(shape_.reader_count)) return false;
  state.parts_done.store(0);
  return true;
}

void Window::Announce(uint64_t slot, const SlotHead& head) {
  SlotState& state = slot_state(slot);
  state.head = head;
  state.ready.store(ReadyWord(slot));
  if (state.waiters.load() > 0) FutexWake(state.ready);
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
  uint32_t expected = kNoFailure;
  if (!control_->failure.compare_exchange_strong(expected, kWriting)) return;
  control_->failed_rank = job_rank_;
  control_->is_urgent = when == When::kNow;
  control_->code = static_cast<int32_t>(error.code());
  control_->error_number = error.error_number();
  control_->message_bytes =
      static_cast<uint32_t>(std::min(error.message().size(), kMessageBytesMax));
  std::memcpy(control_->message.data(), error.message().data(), control_->message_bytes);
  control_->failure.store(kReadable);
  for (uint64_t i = 0; i < kSlotsMax; ++i) FutexWake(slots_[i].ready);
  control_->space_event.fetch_add(1);
  FutexWake(control_->space_event);
}

std::optional<Error> Window::UrgentFailure() const {
  const bool is_urgent = control_->failure.load() == kReadable && control_->is_urgent;
  return is_urgent ? Failure() : std::nullopt;
}

std::optional<Error> Window::Failure() const {
  if (control_->failure.load() != kReadable) return std::nullopt;
  std::string message(control_->message.data(), control_->message_bytes);
  const auto code = static_cast<ErrorCode>(control_->code);
  if (control_->failed_rank == job_rank_ || code == ErrorCode::kPeerFailed) {
    return Error(code, std::move(message), control_->error_number);
  }
  return Error(ErrorCode::kPeerFailed, fmt::format("rank {}: {}", control_->failed_rank, message),
               control_->error_number);
}

}  // namespace lmdbio::load
