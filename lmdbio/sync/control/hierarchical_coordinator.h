// lmdbio/sync/control/hierarchical_coordinator.h - requests go up a tree of hosts to rank 0, and
// every root on the way merges them into one list.
//
// Source: Romero et al. 2.2.3; docs/coordinators.md "Tree of hosts".
#ifndef LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_

#include <optional>
#include <vector>

#include "lmdbio/sync/control/host_requests.h"
#include "lmdbio/sync/control/negotiation.h"
#include "lmdbio/sync/control/round_coordinator.h"

namespace lmdbio::sync {

// Threads: one at a time.
// Cost: a round is at most one message from each rank of its host, from each child and from its
//       parent at a root, and as many back. Rank 0 decodes one list for each child
class HierarchicalCoordinator final : public RoundCoordinator {
 public:
  HierarchicalCoordinator(const RankTopology& layout, MergeExtra merge);

  std::vector<Stall> Stalls() const override { return negotiation_.Stalls(); }

 protected:
  Exchange FirstExchange() override;
  Result<std::optional<Exchange>> NextExchange(Reply reply) override;
  void ForgetCollected() override;

 private:
  // The exchange whose reply comes next.
  enum class HierarchyStep {
    kHostGather,
    kChildrenGather,
    kParentGather,
    kParentBroadcast,
    kChildrenBroadcast,
    kHostBroadcast
  };

  // Merges the gathered requests into those of this root.
  // Errors: kInternal  a malformed message; names the sender
  Status Collect(const Reply& reply, ExchangeScope scope, Speaker speaker);
  std::vector<std::byte> TakeCollected();
  // Errors: as Collect
  Result<Exchange> AfterHostGather(const Reply& reply);
  Result<Exchange> AfterChildrenGather(const Reply& reply);
  void Deliver(ResponseList answer);

  HostRequests host_table_;  // at roots
  RequestList collected_;    // at roots, in a round: `is_ending` and `stalled` of the others
  Negotiation negotiation_;  // at rank 0
  ResponseList answer_;      // at roots, once it is known
  HierarchyStep step_ = HierarchyStep::kHostGather;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_
