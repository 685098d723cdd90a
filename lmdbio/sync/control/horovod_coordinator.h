// lmdbio/sync/control/horovod_coordinator.h - every request goes to rank 0, each time.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_HOROVOD_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_HOROVOD_COORDINATOR_H_

#include <optional>
#include <vector>

#include "lmdbio/sync/control/negotiation.h"
#include "lmdbio/sync/control/round_coordinator.h"

namespace lmdbio::sync {

// Threads: one at a time.
class HorovodCoordinator final : public RoundCoordinator {
 public:
  HorovodCoordinator(const RankTopology& layout, MergeExtra merge)
      : RoundCoordinator(layout), negotiation_(layout, std::move(merge)) {}

  std::vector<Stall> Stalls() const override { return negotiation_.Stalls(); }

 protected:
  Exchange FirstExchange() override;
  Result<std::optional<Exchange>> NextExchange(Reply reply) override;
  void ForgetCollected() override { negotiation_.Clear(); }

 private:
  Negotiation negotiation_;  // at rank 0
  ResponseList answer_;      // at rank 0
  bool has_gathered_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_HOROVOD_COORDINATOR_H_
