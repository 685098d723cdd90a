#include "lmdbio/sync/transport/shared_mailboxes.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/event_count.h"

namespace lmdbio::sync {
namespace {

// A rank yields its core so many times before it sleeps. On shared cores its peers run meanwhile,
// and a peer that arrives soon costs no system call for sleeping.
constexpr int kYieldsMax = 20;

}  // namespace

// All words of conditions are sequentially consistent, as EventCount requires. Each rank that
// arrives writes `arrivals`, so `arrivals` has a cache line of its own: a rank that polls `over`
// loses its line once in a meeting.
struct alignas(64) SharedMailboxes::ArrivalState {
  std::atomic<uint64_t> arrivals;          // at all meetings
  alignas(64) std::atomic<uint32_t> over;  // complete meetings, modulo 2^32
  alignas(64) ranks::EventCount over_changed;
};

struct alignas(64) SharedMailboxes::Mailbox {
  std::atomic<uint64_t> came;      // meetings at which this rank arrived
  std::atomic<uint32_t> wake_ups;  // sent to this rank; the condition of its Sleep
  ranks::EventCount woken;
  std::atomic<uint32_t> listens;  // this rank sleeps, and wants to know of arrivals
  std::atomic<uint32_t> called;   // a peer called this rank to its meeting
  struct Side {
    uint64_t bytes;
    uint64_t total_bytes;
    std::array<std::byte, kPlaceBytes> data;
  };
  // Written before `came` grows, read after `over` does. A rank that writes a side for meeting n
  // has seen that meeting n - 1 is complete. So all ranks arrived there, and have read the side
  // as it was at meeting n - 2.
  std::array<Side, 2> sides;
};

SharedMailboxes::ArrivalState& SharedMailboxes::arrival_state() const {
  return *std::launder(reinterpret_cast<ArrivalState*>(memory_->bytes().data()));
}

SharedMailboxes::Mailbox& SharedMailboxes::mailbox(int rank) const {
  std::byte* const first = memory_->bytes().data() + sizeof(ArrivalState);
  return *std::launder(
      reinterpret_cast<Mailbox*>(first + static_cast<size_t>(rank) * sizeof(Mailbox)));
}

Result<std::unique_ptr<SharedMailboxes>> SharedMailboxes::Create(ranks::Group& host) {
  std::unique_ptr<SharedMailboxes> mailboxes(new SharedMailboxes());
  mailboxes->rank_ = host.rank();
  mailboxes->size_ = host.size();
  LMDBIO_TRY(mailboxes->memory_,
             host.AllocateShared(sizeof(ArrivalState) +
                                 static_cast<size_t>(host.size()) * sizeof(Mailbox)));
  return mailboxes;
}

void SharedMailboxes::Come(Bytes bytes, uint64_t total_bytes) {
  LMDBIO_CHECK(bytes.size() <= kPlaceBytes && is_over());
  Mailbox& mine = mailbox(rank_);
  Mailbox::Side& side = mine.sides[came_count_ % 2];
  side.bytes = bytes.size();
  side.total_bytes = total_bytes;
  if (!bytes.empty()) std::memcpy(side.data.data(), bytes.data(), bytes.size());
  // The bytes come first. Another rank reads them only after it has seen `over`, which the last
  // rank to arrive stores below.
  mine.came.store(++came_count_);
  ArrivalState& all = arrival_state();
  // `arrivals` counts the arrivals at all meetings. So exactly one rank sees that it is the last,
  // and no rank resets the counter.
  if (all.arrivals.fetch_add(1) + 1 == came_count_ * static_cast<uint64_t>(size_)) {
    all.over.store(static_cast<uint32_t>(came_count_));
    all.over_changed.Notify();
  } else {
    WakeListeners();
  }
}

// The ranks that sleep outside of this meeting, and want to know that it began. A listener sets
// `listens` and then reads `arrivals`; this rank has raised `arrivals` and now reads `listens`. In
// the total order one of the two reads sees the other's write.
void SharedMailboxes::WakeListeners() {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || mailbox(other).listens.load() == 0) continue;
    if (mailbox(other).came.load() < came_count_) Ring(other);
  }
}

bool SharedMailboxes::is_over() const {
  return arrival_state().over.load() == static_cast<uint32_t>(came_count_);
}

bool SharedMailboxes::Await(std::chrono::milliseconds limit) {
  for (int i = 0; i < kYieldsMax && !is_over(); ++i) ::sched_yield();
  if (is_over()) return true;
  arrival_state().over_changed.WaitUnless([this] { return is_over(); }, limit);
  return is_over();
}

Bytes SharedMailboxes::BytesOf(int rank) const {
  const Mailbox::Side& side = mailbox(rank).sides[(came_count_ - 1) % 2];
  // The size is from another process, so it is limited to the buffer.
  return Bytes(side.data).first(std::min<uint64_t>(side.bytes, kPlaceBytes));
}

uint64_t SharedMailboxes::TotalBytesOf(int rank) const {
  return mailbox(rank).sides[(came_count_ - 1) % 2].total_bytes;
}

void SharedMailboxes::Sleep(std::chrono::microseconds limit, WakeCause cause) {
  Mailbox& mine = mailbox(rank_);
  mine.listens.store(cause == WakeCause::kWakeUpOrArrival ? 1 : 0);
  const auto is_awake = [&] {
    if (mine.wake_ups.load() != seen_wake_ups_) return true;
    return cause == WakeCause::kWakeUpOrArrival &&
           arrival_state().arrivals.load() > came_count_ * static_cast<uint64_t>(size_);
  };
  mine.woken.WaitUnless(is_awake, std::chrono::ceil<std::chrono::milliseconds>(limit));
  mine.listens.store(0);
  // A wake-up that came before this line need not end the next Sleep: the caller looks for work
  // after this one.
  seen_wake_ups_ = mine.wake_ups.load();
}

void SharedMailboxes::Ring(int rank) {
  Mailbox& theirs = mailbox(rank);
  theirs.wake_ups.fetch_add(1);
  theirs.woken.Notify();
}

void SharedMailboxes::CallMissing() {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || (!is_over() && mailbox(other).came.load() >= came_count_)) continue;
    // Before the wake-up, so that the woken rank finds the call.
    mailbox(other).called.store(1);
    Ring(other);
  }
}

bool SharedMailboxes::TakeCall() {
  Mailbox& mine = mailbox(rank_);
  // The load comes first, because an exchange would take the cache line from the peers each time.
  return mine.called.load() != 0 && mine.called.exchange(0) != 0;
}

}  // namespace lmdbio::sync
