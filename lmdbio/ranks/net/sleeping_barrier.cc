#include "lmdbio/ranks/net/sleeping_barrier.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "lmdbio/ranks/shm/futex.h"

// The first rank of a host waits for the others to arrive, meets the first ranks of the other
// hosts, and lets everybody go. Nobody can arrive a second time before that; but whoever wakes late
// may find others arriving for the next time, so what he takes along is what was written when all
// were let go, and stays until he has arrived again.

namespace lmdbio::ranks {
namespace {

// A lost wake-up is not possible; a dead peer is somebody else's to find.
constexpr auto kNap = std::chrono::milliseconds(1000);

// So wide that of 16 hosts twelve are leaves and sleep once for each meeting.
constexpr int kChildrenMax = 4;

}  // namespace

struct SleepingBarrier::BarrierState {
  alignas(64) std::atomic<uint32_t> arrived;  // of the others, this time
  alignas(64) std::atomic<uint32_t> round;    // changes when everybody may go
  std::atomic<uint32_t> any_failed;           // on arrival; stays set
  std::atomic<uint32_t> has_failed;           // the same when everybody was let go
};

SleepingBarrier::BarrierState& SleepingBarrier::meeting() const {
  return *std::launder(reinterpret_cast<BarrierState*>(memory_->bytes().data()));
}

Result<std::unique_ptr<SleepingBarrier>> SleepingBarrier::Create(Group& group) {
  std::unique_ptr<SleepingBarrier> barrier(new SleepingBarrier());
  LMDBIO_TRY(barrier->host_, group.SplitByHost());
  LMDBIO_TRY(barrier->roots_, group.Split(barrier->host_->rank() == 0 ? 0 : 1));
  if (barrier->host_->rank() == 0 && barrier->roots_->size() > 1) {
    LinkSpec plan;
    barrier->neighbours_ = NeighboursInTree(*barrier->roots_, kChildrenMax);
    for (const int child : barrier->neighbours_.children) plan.sends_to.push_back(child);
    if (barrier->neighbours_.parent) plan.sends_to.push_back(*barrier->neighbours_.parent);
    plan.receives_from = plan.sends_to;
    Result<std::unique_ptr<PeerLinks>> links = PeerLinks::Open(*barrier->roots_, plan);
    if (links) barrier->links_ = std::move(*links);
  }
  LMDBIO_TRY(barrier->memory_, barrier->host_->AllocateShared(sizeof(BarrierState)));
  return barrier;
}

// Whether the rank of any host brings a failure. Over links up a tree of the roots and down again:
// two messages for each host and mostly one sleep, where rounds of pairs would need log2 of the
// hosts of both.
Result<bool> SleepingBarrier::AnyHostFailed(bool mine) {
  if (!links_) {
    LMDBIO_TRY(const auto all, roots_->AllGather(std::as_bytes(std::span(&mine, 1))));
    return std::any_of(all.begin(), all.end(), [](std::byte one) { return one != std::byte{0}; });
  }
  std::byte known{mine};
  for (const int child : neighbours_.children) {
    LMDBIO_TRY(const auto heard, links_->Receive(child));
    if (heard && !heard->empty()) known |= heard->front();
  }
  if (neighbours_.parent) {
    LMDBIO_TRY_VOID(links_->Send(*neighbours_.parent, std::span(&known, 1)));
    LMDBIO_TRY(const auto heard, links_->Receive(*neighbours_.parent));
    if (heard && !heard->empty()) known = heard->front();
  }
  for (const int child : neighbours_.children) {
    LMDBIO_TRY_VOID(links_->Send(child, std::span(&known, 1)));
  }
  return known != std::byte{0};
}

Status SleepingBarrier::LetAllGo(BarrierState& meeting) {
  Status met;
  if (roots_->size() > 1) {
    Result<bool> failed = AnyHostFailed(meeting.any_failed.load() != 0);
    if (!failed || *failed) meeting.any_failed.store(1);
    if (!failed) met = Fail(std::move(failed).error());
  }
  meeting.has_failed.store(meeting.any_failed.load());
  meeting.arrived.store(0);
  meeting.round.fetch_add(1);
  FutexWake(meeting.round);
  return met;
}

Status SleepingBarrier::Meet(Status mine) {
  BarrierState& here = meeting();
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

}  // namespace lmdbio::ranks
