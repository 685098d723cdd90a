#include "lmdbio/comm/sleeping_barrier.h"

#include <atomic>
#include <chrono>
#include <new>

#include "lmdbio/base/futex.h"

// The first rank of a host waits for the others to arrive, meets the first ranks of the other
// hosts, and lets everybody go. Nobody can arrive a second time before that; but whoever wakes late
// may find others arriving for the next time, so what he takes along is what was written when all
// were let go, and stays until he has arrived again.

namespace lmdbio::comm {
namespace {

// A lost wake-up is not possible; a dead peer is somebody else's to find.
constexpr auto kNap = std::chrono::milliseconds(1000);

}  // namespace

struct SleepingBarrier::Meeting {
  alignas(64) std::atomic<uint32_t> arrived;  // of the others, this time
  alignas(64) std::atomic<uint32_t> round;    // changes when everybody may go
  std::atomic<uint32_t> any_failed;           // on arrival; stays set
  std::atomic<uint32_t> has_failed;           // the same when everybody was let go
};

SleepingBarrier::Meeting& SleepingBarrier::meeting() const {
  return *std::launder(reinterpret_cast<Meeting*>(memory_->bytes().data()));
}

Result<std::unique_ptr<SleepingBarrier>> SleepingBarrier::Create(Group& group) {
  std::unique_ptr<SleepingBarrier> barrier(new SleepingBarrier());
  LMDBIO_TRY(barrier->host_, group.SplitByHost());
  LMDBIO_TRY(barrier->roots_, group.Split(barrier->host_->rank() == 0 ? 0 : 1));
  LMDBIO_TRY(barrier->memory_, barrier->host_->AllocateShared(sizeof(Meeting)));
  return barrier;
}

Status SleepingBarrier::LetAllGo(Meeting& meeting) {
  Status met;
  if (roots_->size() > 1) {
    const uint32_t mine = meeting.any_failed.load();
    Result<std::vector<std::byte>> all = roots_->AllGather(std::as_bytes(std::span(&mine, 1)));
    if (!all) {
      met = Fail(std::move(all).error());
      meeting.any_failed.store(1);
    } else {
      for (const std::byte byte : *all) {
        if (byte != std::byte{0}) meeting.any_failed.store(1);
      }
    }
  }
  meeting.has_failed.store(meeting.any_failed.load());
  meeting.arrived.store(0);
  meeting.round.fetch_add(1);
  FutexWake(meeting.round);
  return met;
}

Status SleepingBarrier::Meet(Status mine) {
  Meeting& here = meeting();
  if (!mine) here.any_failed.store(1);
  const uint32_t round = here.round.load();
  Status met;
  if (host_->rank() == 0) {
    const auto others = static_cast<uint32_t>(host_->size() - 1);
    for (uint32_t seen = here.arrived.load(); seen != others; seen = here.arrived.load()) {
      FutexWait(here.arrived, seen, kNap);
    }
    met = LetAllGo(here);
  } else {
    // The first rank sleeps until the last of the others is here.
    const auto others = static_cast<uint32_t>(host_->size() - 1);
    if (here.arrived.fetch_add(1) + 1 == others) FutexWake(here.arrived);
    while (here.round.load() == round) FutexWait(here.round, round, kNap);
  }
  if (!mine) return mine;
  if (!met) return met;
  if (here.has_failed.load() == 0) return {};
  return Fail(ErrorCode::kPeerFailed, "another rank has failed");
}

}  // namespace lmdbio::comm
