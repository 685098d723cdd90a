// lmdbio/ranks/net/sleeping_barrier.h - a barrier of all ranks that sleep while they wait.
//
// MPI's own barrier spins or yields while it waits. That takes cores from other threads, and counts
// their time for the waiting rank. This one sleeps in the kernel. Between hosts, one rank of each
// exchanges messages over links of the barrier's own (ranks/net/peer_links.h), or calls the group
// if no links can be opened.
//
// Source: dissertation 8.3.2 (what busy waiting costs); docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_NET_SLEEPING_BARRIER_H_
#define LMDBIO_RANKS_NET_SLEEPING_BARRIER_H_

#include <memory>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// Threads: one at a time in each rank.
class SleepingBarrier {
 public:
  // Collective over `group`, which must outlive the barrier.
  // Errors: kResourceExhausted  no shared memory; kInternal
  static Result<std::unique_ptr<SleepingBarrier>> Create(Group& group);

  // Collective. Waits for all ranks. If a rank passes an error, now or in an earlier call, each
  // rank that passed one gets its own back, and the others get kPeerFailed without the reason
  // (Agree reports the reason).
  // Errors: as described; kInternal
  Status Meet(Status mine);

 private:
  struct BarrierState;
  SleepingBarrier() = default;
  BarrierState& state() const;
  Status Release(BarrierState& here);
  Result<bool> AnyHostFailed(bool mine);

  std::unique_ptr<Group> host_;
  std::unique_ptr<Group> roots_;      // the first rank of each host; on other ranks, the rest
  TreeNeighbours neighbours_;         // in a tree of the roots
  std::unique_ptr<PeerLinks> links_;  // of the roots of several hosts
  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_SLEEPING_BARRIER_H_
