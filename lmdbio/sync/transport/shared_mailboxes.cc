#include "lmdbio/sync/transport/shared_mailboxes.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/futex.h"

namespace lmdbio::sync {
namespace {

// Before it sleeps a rank gives up its core so many times: on shared cores the others run
// meanwhile, and a peer that is about to come costs no trip to the futex.
constexpr int kYieldsMax = 20;

}  // namespace

// All accesses are sequentially consistent: a rank that says that it sleeps, and then sees that the
// meeting is not over, is seen by who ends it.
struct alignas(64) SharedMailboxes::ArrivalState {
  std::atomic<uint64_t> arrivals;              // of all meetings
  alignas(64) std::atomic<uint32_t> over;      // meetings that are over, modulo 2^32
  alignas(64) std::atomic<uint32_t> sleepers;  // that wait for `over` to change
};

struct alignas(64) SharedMailboxes::Mailbox {
  std::atomic<uint64_t> came;  // meetings that this rank has come to
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleeps;   // on its bell
  std::atomic<uint32_t> listens;  // to arrivals
  std::atomic<uint32_t> called;
  struct Side {
    uint64_t bytes;
    uint64_t total_bytes;
    std::array<std::byte, kPlaceBytes> data;
  };
  // Written before `came` says so, read after `over` does.
  std::array<Side, 2> sides;
};

SharedMailboxes::ArrivalState& SharedMailboxes::meeting() const {
  return *std::launder(reinterpret_cast<ArrivalState*>(memory_->bytes().data()));
}

SharedMailboxes::Mailbox& SharedMailboxes::place(int rank) const {
  std::byte* const first = memory_->bytes().data() + sizeof(ArrivalState);
  return *std::launder(
      reinterpret_cast<Mailbox*>(first + static_cast<size_t>(rank) * sizeof(Mailbox)));
}

Result<std::unique_ptr<SharedMailboxes>> SharedMailboxes::Create(ranks::Group& host) {
  std::unique_ptr<SharedMailboxes> board(new SharedMailboxes());
  board->rank_ = host.rank();
  board->size_ = host.size();
  LMDBIO_TRY(board->memory_,
             host.AllocateShared(sizeof(ArrivalState) +
                                 static_cast<size_t>(host.size()) * sizeof(Mailbox)));
  return board;
}

void SharedMailboxes::Come(Bytes bytes, uint64_t total_bytes) {
  LMDBIO_CHECK(bytes.size() <= kPlaceBytes && is_over());
  Mailbox& mine = place(rank_);
  Mailbox::Side& side = mine.sides[came_count_ % 2];
  side.bytes = bytes.size();
  side.total_bytes = total_bytes;
  if (!bytes.empty()) std::memcpy(side.data.data(), bytes.data(), bytes.size());
  mine.came.store(++came_count_);
  if (meeting().arrivals.fetch_add(1) + 1 == came_count_ * static_cast<uint64_t>(size_)) {
    meeting().over.store(static_cast<uint32_t>(came_count_));
    if (meeting().sleepers.load() > 0) FutexWake(meeting().over);
  } else {
    RingListeners();
  }
}

void SharedMailboxes::RingListeners() {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || place(other).listens.load() == 0) continue;
    if (place(other).came.load() < came_count_) Ring(other);
  }
}

bool SharedMailboxes::is_over() const {
  return meeting().over.load() == static_cast<uint32_t>(came_count_);
}

bool SharedMailboxes::Await(std::chrono::milliseconds limit) {
  for (int i = 0; i < kYieldsMax && !is_over(); ++i) ::sched_yield();
  if (is_over()) return true;
  const auto before = static_cast<uint32_t>(came_count_ - 1);
  meeting().sleepers.fetch_add(1);
  if (!is_over()) FutexWait(meeting().over, before, limit);
  meeting().sleepers.fetch_sub(1);
  return is_over();
}

Bytes SharedMailboxes::BytesOf(int rank) const {
  const Mailbox::Side& side = place(rank).sides[(came_count_ - 1) % 2];
  return Bytes(side.data).first(std::min<uint64_t>(side.bytes, kPlaceBytes));
}

uint64_t SharedMailboxes::TotalBytesOf(int rank) const {
  return place(rank).sides[(came_count_ - 1) % 2].total_bytes;
}

void SharedMailboxes::Sleep(std::chrono::microseconds limit, Listens listens) {
  Mailbox& mine = place(rank_);
  mine.listens.store(listens == Listens::kToArrivals ? 1 : 0);
  mine.sleeps.store(1);
  const bool has_come_peer = listens == Listens::kToArrivals &&
                             meeting().arrivals.load() > came_count_ * static_cast<uint64_t>(size_);
  if (!has_come_peer && mine.bell.load() == heard_) {
    FutexWait(mine.bell, heard_, std::chrono::ceil<std::chrono::milliseconds>(limit));
  }
  mine.sleeps.store(0);
  mine.listens.store(0);
  heard_ = mine.bell.load();
}

void SharedMailboxes::Ring(int rank) {
  Mailbox& theirs = place(rank);
  theirs.bell.fetch_add(1);
  if (theirs.sleeps.load() != 0) FutexWake(theirs.bell);
}

void SharedMailboxes::CallMissing() {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || (!is_over() && place(other).came.load() >= came_count_)) continue;
    place(other).called.store(1);
    Ring(other);
  }
}

bool SharedMailboxes::TakeCall() {
  return place(rank_).called.load() != 0 && place(rank_).called.exchange(0) != 0;
}

}  // namespace lmdbio::sync
