// lmdbio/ranks/net/sleeping_barrier.h - a place where all ranks meet, asleep while they wait.
//
// MPI's own barrier spins or yields while it waits, which costs the cores that others need and
// hides who used them. This one sleeps in the kernel. Between hosts one rank of each meets the
// others over links of its own (ranks/net/peer_links.h), or through MPI where those cannot be had.
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

  // Collective. Waits for all ranks. If any of them brings an error, now or before, a rank with one
  // gets its own back and the others kPeerFailed, without its words (Agree tells them).
  // Errors: as described; kInternal
  Status Meet(Status mine);

 private:
  struct BarrierState;
  SleepingBarrier() = default;
  BarrierState& meeting() const;
  Status LetAllGo(BarrierState& meeting);
  Result<bool> AnyHostFailed(bool mine);

  std::unique_ptr<Group> host_;
  std::unique_ptr<Group> roots_;      // the first rank of each host; on other ranks, the rest
  TreeNeighbours neighbours_;         // in a tree of the roots
  std::unique_ptr<PeerLinks> links_;  // of the roots of several hosts
  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_SLEEPING_BARRIER_H_
