#include "lmdbio/sync/over_memory/host_segment.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/futex.h"

// Why no wake-up is lost. A sleeper says what it waits for, raises `asleep` and `sleepers`, looks
// at everybody's number once more, and sleeps on a bell that the kernel compares again. A rank that
// goes on first changes its number, then looks at `sleepers`, `asleep`, and everybody's number. All
// of these are sequentially consistent. So either the sleeper sees the number, or the rank sees the
// sleeper; and of several ranks that go on at once, the last in that order sees all numbers, and
// rings.

namespace lmdbio::sync {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kPageBytes = 4096;
constexpr size_t kWordsMax = 2000;
constexpr uint64_t kDeclinedBit = uint64_t{1} << 63;  // in CallHeader::place, on the table

// Looks before a rank gives up its core, and how often it gives it up before it sleeps. A yield
// that finds nobody else to run takes some tenths of a microsecond. Who has looked in vain looks
// for half as long the next time: the peer may wait for this very core.
constexpr int kLooksMin = 1;
constexpr int kSpinLooksMax = 200;
constexpr int kSpinYields = 2000;
constexpr int kSleepYields = 100;
constexpr int kLooksBetweenStops = 64;
constexpr auto kLeaveLimit = std::chrono::seconds(5);

enum StopState : uint32_t { kGoing = 0, kWriting = 1, kReadable = 2 };
enum Leaving : uint32_t { kOpen = 0, kInPeace = 1, kAbandoned = 2 };

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct alignas(kLineBytes) HostSegment::SegmentHeader {
  // Read in every call, written once.
  std::atomic<uint32_t> stop_state;
  uint32_t words_bytes;
  std::array<char, kWordsMax> words;

  alignas(kLineBytes) std::atomic<uint32_t> sleepers;
  alignas(kLineBytes) std::atomic<uint32_t> leaving;  // enum Leaving
  std::atomic<uint32_t> left_count;

  // Of the last call that had any: the call's number << kPieceBits | how many.
  alignas(kLineBytes) std::atomic<uint64_t> pieces_taken;
  alignas(kLineBytes) std::atomic<uint64_t> pieces_done;
};

struct alignas(kLineBytes) HostSegment::Sleeper {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> asleep;
  std::atomic<uint64_t> wanted;
};

struct alignas(kLineBytes) HostSegment::Post {
  std::atomic<uint64_t> reached;
  CallHeader header;
  // and the slot's bytes, beginning in the same cache line
};

uint64_t HostSegment::BytesNeeded(const HostSegmentShape& shape) {
  const auto ranks = static_cast<uint64_t>(shape.rank_count);
  const uint64_t post_bytes = AlignUp(sizeof(uint64_t) * 4 + shape.slot_bytes, kLineBytes * 2);
  return AlignUp(sizeof(SegmentHeader) + ranks * sizeof(Sleeper) + 2 * ranks * post_bytes,
                 kPageBytes) +
         ranks * kBuffers * shape.buffer_bytes;
}

HostSegment::HostSegment(MutableBytes memory, const HostSegmentShape& shape, int rank,
                         WaitMode wait, ranks::Health& health)
    : shape_(shape),
      rank_(rank),
      wait_(wait),
      health_(health),
      memory_(memory.data()),
      post_bytes_(AlignUp(sizeof(uint64_t) * 4 + shape.slot_bytes, kLineBytes * 2)),
      look_count_(kLooksMin),
      checked_at_(std::chrono::steady_clock::now()) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static_assert(sizeof(CallHeader) == 3 * sizeof(uint64_t));
  LMDBIO_CHECK(memory.size() >= BytesNeeded(shape));
  LMDBIO_CHECK(shape.buffer_bytes % kLineBytes == 0);
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
  // Acquire pairs with StopSaying's release: the words can be read.
  if (control().stop_state.load(std::memory_order_acquire) != kGoing) return Fail(StopError());
  return {};
}

void HostSegment::Arrive(const CallTag& tag, const CallHeader& mine) {
  Post& post = PostOf(rank_, call_ % 2);
  post.header = mine;
  if (tag.is_declined) post.header.place = kDeclinedBit;
  Reach(ValueOf(0));
}

void HostSegment::Publish(uint32_t step) { Reach(ValueOf(step)); }

// Others' HaveReached acquires what was written before.
void HostSegment::Reach(uint64_t value) {
  PostOf(rank_, call_ % 2).reached.store(value, std::memory_order_seq_cst);
  RingSleepers();
}

// Counts from 0 in each call that counts anything. Returns the count before; none: it has come to
// `limit`. Nobody counts in two calls at once: those of the next one wait for all to come to it.
std::optional<uint64_t> HostSegment::CountUp(std::atomic<uint64_t>& counter, uint64_t limit) const {
  const uint64_t zero = call_ << kPieceBits;
  uint64_t seen = counter.load(std::memory_order_relaxed);
  while (true) {
    const bool is_of_this_call = seen >> kPieceBits == zero >> kPieceBits;
    const uint64_t count = is_of_this_call ? seen - zero : 0;
    if (count == limit) return std::nullopt;
    // Both ways: who counts last has seen what all others did before they counted.
    if (counter.compare_exchange_weak(seen, zero + count + 1, std::memory_order_acq_rel)) {
      return count;
    }
  }
}

std::optional<uint64_t> HostSegment::TakePiece(uint64_t piece_count) {
  return CountUp(control().pieces_taken, piece_count);
}

// The others' numbers can be written here: nobody writes its own in this call any more, and into
// these posts not before this rank, too, has come to the next one.
void HostSegment::FinishPiece(uint64_t piece_count, uint32_t step) {
  const std::optional<uint64_t> done_before = CountUp(control().pieces_done, piece_count);
  LMDBIO_CHECK(done_before);
  if (*done_before + 1 < piece_count) return;
  for (int other = 0; other < size(); ++other) {
    PostOf(other, call_ % 2).reached.store(ValueOf(step), std::memory_order_seq_cst);
  }
  RingSleepers();
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

Status HostSegment::AwaitLong(uint64_t value) {
  const int looks_max = wait_ == WaitMode::kSpin ? kSpinLooksMax : kLooksMin;
  for (int i = 1; i <= look_count_; ++i) {
    if (LookFor(value)) {
      look_count_ = std::min(looks_max, 2 * look_count_);
      return {};
    }
    if (i % kLooksBetweenStops == 0 && control().stop_state.load() != kGoing) break;
    Relax();
  }
  look_count_ = std::max(kLooksMin, look_count_ / 2);
  if (YieldUntil(value)) return {};
  while (!LookFor(value)) LMDBIO_TRY_VOID(SleepUntil(value));
  return {};
}

// Gives up the core for a while. False: the value is not there, and this rank had better sleep.
bool HostSegment::YieldUntil(uint64_t value) {
  if (!yield_pauses_.MayYield()) return false;
  const int yield_count = wait_ == WaitMode::kSpin ? kSpinYields : kSleepYields;
  auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < yield_count && control().stop_state.load() == kGoing; ++i) {
    ::sched_yield();
    const auto after = std::chrono::steady_clock::now();
    const bool is_long = after - before > YieldBackoff::kLongYield;
    if (is_long) yield_pauses_.BeginPause();
    if (LookFor(value)) return true;
    if (is_long) return false;
    before = after;
  }
  return false;
}

Status HostSegment::SleepUntil(uint64_t value) {
  if (control().stop_state.load(std::memory_order_acquire) != kGoing) return Fail(StopError());
  Sleeper& mine = SleeperOf(rank_);
  const uint32_t bell = mine.bell.load();
  mine.wanted.store(value);
  mine.asleep.store(1);
  control().sleepers.fetch_add(1);
  if (!HaveReached(value, std::memory_order_seq_cst) && control().stop_state.load() == kGoing) {
    FutexWait(mine.bell, bell, ranks::kHealthNap);
  }
  control().sleepers.fetch_sub(1);
  mine.asleep.store(0);
  if (LookFor(value)) return {};
  return KeepAlive();
}

void HostSegment::RingSleepers() {
  if (control().sleepers.load(std::memory_order_seq_cst) == 0) return;
  for (int other = 0; other < size(); ++other) {
    Sleeper& sleeper = SleeperOf(other);
    if (other == rank_ || sleeper.asleep.load() == 0) continue;
    if (!HaveReached(sleeper.wanted.load(), std::memory_order_seq_cst)) continue;
    if (sleeper.asleep.exchange(0) != 0) Ring(other);  // and nobody else does
  }
}

void HostSegment::Ring(int rank) {
  Sleeper& sleeper = SleeperOf(rank);
  sleeper.bell.fetch_add(1);
  FutexWake(sleeper.bell);
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
  StopSaying(health.error().message());
  return Fail(StopError());
}

void HostSegment::Stop(const Error& why) {
  StopSaying(fmt::format("rank {} has stopped: {}", rank_, why.message()));
}

// The first words stay.
void HostSegment::StopSaying(const std::string& words) {
  SegmentHeader& shared = control();
  uint32_t expected = kOpen;
  shared.leaving.compare_exchange_strong(expected, kAbandoned);
  expected = kGoing;
  if (!shared.stop_state.compare_exchange_strong(expected, kWriting)) return;
  const size_t bytes = std::min(words.size(), shared.words.size());
  std::memcpy(shared.words.data(), words.data(), bytes);
  shared.words_bytes = static_cast<uint32_t>(bytes);
  shared.stop_state.store(kReadable);
  for (int other = 0; other < size(); ++other) Ring(other);
}

Error HostSegment::StopError() const {
  // Who writes the words may have died over it.
  for (int i = 0; i < 1000 && control().stop_state.load() == kWriting; ++i) ::sched_yield();
  if (control().stop_state.load() != kReadable) {
    return Error(ErrorCode::kPeerFailed, "a rank of this host has stopped");
  }
  return Error(ErrorCode::kPeerFailed, std::string(control().words.data(), control().words_bytes));
}

bool HostSegment::LeaveInPeace() {
  SegmentHeader& shared = control();
  const auto rank_count = static_cast<uint32_t>(size());
  uint32_t expected = kOpen;
  if (shared.stop_state.load() != kGoing) {
    shared.leaving.compare_exchange_strong(expected, kAbandoned);
  } else if (shared.left_count.fetch_add(1) + 1 == rank_count) {
    shared.leaving.compare_exchange_strong(expected, kInPeace);
  }
  const auto give_up = std::chrono::steady_clock::now() + kLeaveLimit;
  while (shared.leaving.load() == kOpen) {
    FutexWait(shared.leaving, kOpen, std::chrono::milliseconds(100));
    if (std::chrono::steady_clock::now() < give_up) continue;
    expected = kOpen;
    shared.leaving.compare_exchange_strong(expected, kAbandoned);
  }
  FutexWake(shared.leaving);
  return shared.leaving.load() == kInPeace;
}

}  // namespace lmdbio::sync
