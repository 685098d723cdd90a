// lmdbio/sync/control/hierarchical_coordinator.h - requests go to the root of each host, which
// sends one list to rank 0.
//
// Source: Romero et al. 2.2.3; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_

#include <optional>
#include <vector>

#include "lmdbio/sync/control/host_requests.h"
#include "lmdbio/sync/control/negotiation.h"
#include "lmdbio/sync/control/round_coordinator.h"

namespace lmdbio::sync {

// Threads: one at a time.
class HierarchicalCoordinator final : public RoundCoordinator {
 public:
  HierarchicalCoordinator(const RankTopology& layout, MergeExtra merge)
      : RoundCoordinator(layout),
        host_table_(layout.size(), layout.Members(ExchangeScope::kHost)),
        negotiation_(layout, std::move(merge)) {}

  std::vector<Stall> Stalls() const override { return negotiation_.Stalls(); }

 protected:
  Exchange FirstExchange() override;
  Result<std::optional<Exchange>> NextExchange(Reply reply) override;
  void ForgetCollected() override;

 private:
  // The exchange whose reply comes next.
  enum class HierarchyStep { kHostGather, kRootGather, kRootBroadcast, kHostBroadcast };

  // Errors: kInternal  a malformed message; names the sender
  Result<Exchange> AfterHostGather(const Reply& reply);
  void Deliver(ResponseList answer);

  HostRequests host_table_;  // at roots
  Negotiation negotiation_;  // at rank 0
  ResponseList answer_;      // at roots, once it is known
  HierarchyStep step_ = HierarchyStep::kHostGather;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_HIERARCHICAL_COORDINATOR_H_
