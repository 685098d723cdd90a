#include "lmdbio/sync/over_memory/host_segment.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/event_count.h"

// Why no wake-up is lost, in three steps. All accesses are sequentially consistent.
//
// - A sleeper announces itself in its event count. Then it stores the number that it waits for
//   (`wanted`), sets `asleep`, raises `sleepers`, looks at the numbers of all ranks once more, and
//   sleeps.
// - A rank that progresses stores its own number first. Then it looks at `sleepers`, `asleep` and
//   the numbers of all ranks. So the sleeper sees the number, or the rank sees the sleeper.
// - If several ranks progress at once, the last of them in the total order sees all numbers, and
//   wakes the sleeper.

namespace lmdbio::sync {
namespace {

constexpr uint64_t kDeclinedBit = uint64_t{1} << 63;  // in CallHeader::place, in shared memory

// A wait has three phases: looks, yields of the core, sleep. A yield takes some tenths of a
// microsecond if no other thread is ready to run on the core. After looks in vain the next wait has
// half as many of them, because the peer may need this core. After a success it has twice as many.
constexpr int kLooksMin = 1;
constexpr int kSpinLooksMax = 200;
constexpr int kSpinYields = 2000;
constexpr int kSleepYields = 100;
constexpr int kLooksBetweenStops = 64;
constexpr auto kLeaveLimit = std::chrono::seconds(5);

enum Leaving : uint32_t { kOpen = 0, kInPeace = 1, kAbandoned = 2 };

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct alignas(kCacheLineBytes) HostSegment::SegmentHeader {
  ranks::FailureCell failure;  // its state is read in every call, and written once

  alignas(kCacheLineBytes) std::atomic<uint32_t> sleepers;
  alignas(kCacheLineBytes) std::atomic<uint32_t> leaving;  // enum Leaving
  std::atomic<uint32_t> left_count;
  ranks::EventCount leaving_changed;

  // Work items of the last call that had any: the call's number << kPieceBits | their number.
  alignas(kCacheLineBytes) std::atomic<uint64_t> pieces_taken;
  alignas(kCacheLineBytes) std::atomic<uint64_t> pieces_done;
};

struct alignas(kCacheLineBytes) HostSegment::Sleeper {
  ranks::EventCount woken;
  std::atomic<uint32_t> asleep;  // the rank that resets it wakes the sleeper
  std::atomic<uint64_t> wanted;
};

struct alignas(kCacheLineBytes) HostSegment::Post {
  std::atomic<uint64_t> reached;
  CallHeader header;
  // The bytes of the slot follow, and begin in the same cache line.
};

uint64_t HostSegment::BytesNeeded(const HostSegmentShape& shape) {
  const auto ranks = static_cast<uint64_t>(shape.rank_count);
  const uint64_t post_bytes = AlignUp(sizeof(uint64_t) * 4 + shape.slot_bytes, kCacheLineBytes * 2);
  return AlignUp(sizeof(SegmentHeader) + ranks * sizeof(Sleeper) + 2 * ranks * post_bytes,
                 MemoryPageBytes()) +
         ranks * kBuffers * shape.buffer_bytes;
}

HostSegment::HostSegment(MutableBytes memory, const HostSegmentShape& shape, int rank,
                         WaitMode wait, ranks::Health& health)
    : shape_(shape),
      rank_(rank),
      wait_(wait),
      health_(health),
      memory_(memory.data()),
      failure_(control().failure),
      post_bytes_(AlignUp(sizeof(uint64_t) * 4 + shape.slot_bytes, kCacheLineBytes * 2)),
      look_count_(kLooksMin),
      checked_at_(std::chrono::steady_clock::now()) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static_assert(sizeof(CallHeader) == 3 * sizeof(uint64_t));
  LMDBIO_CHECK(memory.size() >= BytesNeeded(shape));
  LMDBIO_CHECK(shape.buffer_bytes % kCacheLineBytes == 0);
  const auto ranks = static_cast<uint64_t>(shape.rank_count);
  posts_ = memory_ + sizeof(SegmentHeader) + ranks * sizeof(Sleeper);
  buffers_ = memory_ + BytesNeeded(shape) - ranks * kBuffers * shape.buffer_bytes;
}

HostSegment::SegmentHeader& HostSegment::control() const {
  return *std::launder(reinterpret_cast<SegmentHeader*>(memory_));
}
HostSegment::Sleeper& HostSegment::SleeperOf(int rank) const {
  return std::launder(reinterpret_cast<Sleeper*>(memory_ + sizeof(SegmentHeader)))[rank];
}
HostSegment::Post& HostSegment::PostOf(int rank, uint64_t parity) const {
  const auto index = parity * static_cast<uint64_t>(size()) + static_cast<uint64_t>(rank);
  return *std::launder(reinterpret_cast<Post*>(posts_ + index * post_bytes_));
}
std::byte* HostSegment::SlotOf(int rank) const {
  return reinterpret_cast<std::byte*>(&PostOf(rank, call_ % 2)) + 4 * sizeof(uint64_t);
}
std::byte* HostSegment::BufferOf(int rank, uint64_t chunk) const {
  const uint64_t index = static_cast<uint64_t>(rank) * kBuffers + (first_chunk_ + chunk) % kBuffers;
  return buffers_ + index * shape_.buffer_bytes;
}
const CallHeader& HostSegment::HeaderOf(int rank) const { return PostOf(rank, call_ % 2).header; }

Status HostSegment::Begin() {
  ++call_;
  return CheckStopped();
}

void HostSegment::Arrive(const CallTag& tag, const CallHeader& mine) {
  Post& post = PostOf(rank_, call_ % 2);
  post.header = mine;
  if (tag.is_declined) post.header.place = kDeclinedBit;
  Reach(ValueOf(0));
}

void HostSegment::Publish(uint32_t step) { Reach(ValueOf(step)); }

// The store pairs with HaveReached of the other ranks, which then see the bytes written before it.
void HostSegment::Reach(uint64_t value) {
  PostOf(rank_, call_ % 2).reached.store(value, std::memory_order_seq_cst);
  WakeSleepers();
}

// Counts from 0 in each call that uses the counter. Returns the count before; nothing if it is
// `limit` already. The first rank of a call to count finds the number of an older call, and starts
// again from 0. No two calls count at once, because a rank counts only after all have arrived at
// the call.
std::optional<uint64_t> HostSegment::CountUp(std::atomic<uint64_t>& counter, uint64_t limit) const {
  const uint64_t zero = call_ << kPieceBits;
  uint64_t seen = counter.load(std::memory_order_relaxed);
  while (true) {
    const bool is_of_this_call = seen >> kPieceBits == zero >> kPieceBits;
    const uint64_t count = is_of_this_call ? seen - zero : 0;
    if (count == limit) return std::nullopt;
    // Acquire and release: the rank that counts last sees all bytes that the others wrote before.
    if (counter.compare_exchange_weak(seen, zero + count + 1, std::memory_order_acq_rel)) {
      return count;
    }
  }
}

std::optional<uint64_t> HostSegment::TakePiece(uint64_t piece_count) {
  return CountUp(control().pieces_taken, piece_count);
}

// This rank may write the numbers of the others. No rank writes its own number in this call any
// more, and no rank writes to these posts again before this rank, too, has arrived at the next
// call.
void HostSegment::FinishPiece(uint64_t piece_count, uint32_t step) {
  const std::optional<uint64_t> done_before = CountUp(control().pieces_done, piece_count);
  LMDBIO_CHECK(done_before);
  if (*done_before + 1 < piece_count) return;
  for (int other = 0; other < size(); ++other) {
    PostOf(other, call_ % 2).reached.store(ValueOf(step), std::memory_order_seq_cst);
  }
  WakeSleepers();
}

bool HostSegment::HaveReached(uint64_t value, std::memory_order order) const {
  const uint64_t parity = (value >> 32) % 2;
  for (int other = 0; other < size(); ++other) {
    if (PostOf(other, parity).reached.load(order) < value) return false;
  }
  return true;
}

// Acquire pairs with the store in Reach.
bool HostSegment::LookFor(uint64_t value) const {
  return HaveReached(value, std::memory_order_acquire);
}

Status HostSegment::Await(uint32_t step) {
  if (LookFor(ValueOf(step))) return {};
  return AwaitLong(ValueOf(step));
}

// Spinning and yielding stay here on purpose: peers in one call usually differ by microseconds, and
// a sleep with its wake-up takes several of them.
Status HostSegment::AwaitLong(uint64_t value) {
  const int looks_max = wait_ == WaitMode::kSpin ? kSpinLooksMax : kLooksMin;
  for (int i = 1; i <= look_count_; ++i) {
    if (LookFor(value)) {
      look_count_ = std::min(looks_max, 2 * look_count_);
      return {};
    }
    if (i % kLooksBetweenStops == 0 && control().failure.is_recorded()) break;
    Relax();
  }
  look_count_ = std::max(kLooksMin, look_count_ / 2);
  const int yield_count = wait_ == WaitMode::kSpin ? kSpinYields : kSleepYields;
  yield_pauses_.Yield(yield_count,
                      [&] { return LookFor(value) || control().failure.is_recorded(); });
  while (!LookFor(value)) LMDBIO_TRY_VOID(SleepUntil(value));
  return {};
}

Status HostSegment::SleepUntil(uint64_t value) {
  LMDBIO_TRY_VOID(CheckStopped());
  Sleeper& mine = SleeperOf(rank_);
  // First of all: a rank that resets `asleep` then finds this sleeper announced, and its
  // notification ends the wait, even if that rank still acts on the previous `wanted`.
  const ranks::EventCount::Ticket ticket = mine.woken.Prepare();
  mine.wanted.store(value);
  mine.asleep.store(1);
  control().sleepers.fetch_add(1);
  if (HaveReached(value, std::memory_order_seq_cst) || control().failure.is_recorded()) {
    mine.woken.Cancel();
  } else {
    mine.woken.Wait(ticket, ranks::kHealthNap);
  }
  control().sleepers.fetch_sub(1);
  mine.asleep.store(0);
  if (LookFor(value)) return {};
  return KeepAlive();
}

// Without sleepers this costs one load, of a word that changes only when ranks sleep.
void HostSegment::WakeSleepers() {
  if (control().sleepers.load(std::memory_order_seq_cst) == 0) return;
  for (int other = 0; other < size(); ++other) {
    Sleeper& sleeper = SleeperOf(other);
    if (other == rank_ || sleeper.asleep.load() == 0) continue;
    if (!HaveReached(sleeper.wanted.load(), std::memory_order_seq_cst)) continue;
    if (sleeper.asleep.exchange(0) != 0) sleeper.woken.Notify();  // one rank makes the system call
  }
}

CallOutcome HostSegment::Outcome() const {
  const CallHeader& mine = HeaderOf(rank_);
  for (int other = 0; other < size(); ++other) {
    const CallHeader& theirs = HeaderOf(other);
    if (theirs.digest != mine.digest || theirs.meaning != mine.meaning ||
        (theirs.place & kDeclinedBit) != 0) {
      return CallOutcome::kDeclined;
    }
  }
  return CallOutcome::kDone;
}

Status HostSegment::KeepAlive() {
  const auto now = std::chrono::steady_clock::now();
  if (now - checked_at_ < ranks::kHealthNap) return {};
  checked_at_ = now;
  const Status health = health_.Check();
  if (health) return {};
  RecordStop(health.error());
  LMDBIO_TRY_VOID(CheckStopped());
  return Fail(health.error().Copy());  // another rank is recording its failure just now
}

void HostSegment::Stop(const Error& why) {
  RecordStop(Error(ErrorCode::kPeerFailed,
                   fmt::format("rank {} has stopped: {}", rank_, why.message()),
                   why.error_number()));
}

void HostSegment::RecordStop(const Error& why) {
  SegmentHeader& shared = control();
  uint32_t expected = kOpen;
  shared.leaving.compare_exchange_strong(expected, kAbandoned);
  if (!shared.failure.Record(why, rank_)) return;
  for (int other = 0; other < size(); ++other) SleeperOf(other).woken.Notify();
}

Status HostSegment::CheckStopped() {
  const std::optional<ranks::RecordedFailure> failure = failure_.Look();
  if (!failure) [[likely]]
    return {};
  return Fail(ErrorCode::kPeerFailed, failure->text, failure->error_number);
}

// The last rank to leave closes the segment in peace. The first rank that waits for too long, or
// sees a failure, closes it as abandoned. The first of these two decides for all.
bool HostSegment::LeaveInPeace() {
  SegmentHeader& shared = control();
  const auto rank_count = static_cast<uint32_t>(size());
  uint32_t expected = kOpen;
  if (shared.failure.is_recorded()) {
    shared.leaving.compare_exchange_strong(expected, kAbandoned);
  } else if (shared.left_count.fetch_add(1) + 1 == rank_count) {
    shared.leaving.compare_exchange_strong(expected, kInPeace);
  }
  const auto give_up = std::chrono::steady_clock::now() + kLeaveLimit;
  const auto is_closed = [&] { return shared.leaving.load() != kOpen; };
  while (!is_closed()) {
    shared.leaving_changed.WaitUnless(is_closed, std::chrono::milliseconds(100));
    if (std::chrono::steady_clock::now() < give_up && health_.Check()) continue;
    expected = kOpen;
    shared.leaving.compare_exchange_strong(expected, kAbandoned);
  }
  shared.leaving_changed.Notify();
  return shared.leaving.load() == kInPeace;
}

}  // namespace lmdbio::sync
