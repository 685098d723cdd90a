#include "lmdbio/ranks/net/sleeping_barrier.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "lmdbio/ranks/shm/event_count.h"

// The first rank of a host waits until the others have arrived, meets the first ranks of the other
// hosts, and releases its host. No rank arrives at the next round before its release. But a rank
// that wakes late may find others arriving at the next round already. So its result is a word that
// is written at the release, and stays until this rank has arrived again.

namespace lmdbio::ranks {
namespace {

// No wake-up is lost. The longest sleep only bounds the delay that a defect would cause. The
// barrier does not look for ended peers; its callers do.
constexpr auto kNap = std::chrono::milliseconds(1000);

// The tree is wide: of 16 hosts twelve are leaves, and a leaf sleeps once in each round.
constexpr int kChildrenMax = 4;

}  // namespace

struct SleepingBarrier::BarrierState {
  alignas(64) std::atomic<uint32_t> arrived;  // of the others, in this round
  EventCount all_arrived;
  alignas(64) std::atomic<uint32_t> round;  // changes when the first rank releases its host
  EventCount released;
  std::atomic<uint32_t> any_failed;  // set on arrival; stays set
  std::atomic<uint32_t> has_failed;  // the same at the release
};

SleepingBarrier::BarrierState& SleepingBarrier::state() const {
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
    // PeerLinks::Open has one result for all roots, so all of them use links or none does.
    if (links) barrier->links_ = std::move(*links);
  }
  LMDBIO_TRY(barrier->memory_, barrier->host_->AllocateShared(sizeof(BarrierState)));
  return barrier;
}

// Whether a rank of any host has failed. The answer goes over links up a tree of the roots and down
// again: two messages and mostly one sleep for each host. Rounds of pairs would take log2 of the
// number of hosts of both.
Result<bool> SleepingBarrier::AnyHostFailed(bool mine) {
  if (!links_) {
    LMDBIO_TRY(const auto all, roots_->AllGather(std::as_bytes(std::span(&mine, 1))));
    return std::any_of(all.begin(), all.end(), [](std::byte one) { return one != std::byte{0}; });
  }
  std::byte known{mine};
  for (const int child : neighbours_.children) {
    LMDBIO_TRY(const auto message, links_->Receive(child));
    if (message && !message->empty()) known |= message->front();
  }
  if (neighbours_.parent) {
    LMDBIO_TRY_VOID(links_->Send(*neighbours_.parent, std::span(&known, 1)));
    LMDBIO_TRY(const auto message, links_->Receive(*neighbours_.parent));
    if (message && !message->empty()) known = message->front();
  }
  for (const int child : neighbours_.children) {
    LMDBIO_TRY_VOID(links_->Send(child, std::span(&known, 1)));
  }
  return known != std::byte{0};
}

Status SleepingBarrier::Release(BarrierState& here) {
  Status met;
  if (roots_->size() > 1) {
    Result<bool> failed = AnyHostFailed(here.any_failed.load() != 0);
    if (!failed || *failed) here.any_failed.store(1);
    if (!failed) met = Fail(std::move(failed).error());
  }
  // The round comes last. It releases the ranks, and they may arrive at the next barrier at once.
  here.has_failed.store(here.any_failed.load());
  here.arrived.store(0);
  here.round.fetch_add(1);
  here.released.Notify();
  return met;
}

Status SleepingBarrier::Meet(Status mine) {
  BarrierState& here = state();
  if (!mine) here.any_failed.store(1);
  // Read before this rank arrives, because the release may follow at once.
  const uint32_t round = here.round.load();
  const auto others = static_cast<uint32_t>(host_->size() - 1);
  Status met;
  if (host_->rank() == 0) {
    const auto have_all_arrived = [&] { return here.arrived.load() == others; };
    while (!have_all_arrived()) here.all_arrived.WaitUnless(have_all_arrived, kNap);
    met = Release(here);
  } else {
    // Only the last rank to arrive wakes the first rank.
    if (here.arrived.fetch_add(1) + 1 == others) here.all_arrived.Notify();
    const auto is_released = [&] { return here.round.load() != round; };
    while (!is_released()) here.released.WaitUnless(is_released, kNap);
  }
  if (!mine) return mine;
  if (!met) return met;
  if (here.has_failed.load() == 0) return {};
  return Fail(ErrorCode::kPeerFailed, "another rank has failed");
}

}  // namespace lmdbio::ranks
