#include "lmdbio/sync/control/coordinator.h"

#include <fmt/format.h>

#include "lmdbio/sync/control/cache_coordinator.h"
#include "lmdbio/sync/control/hierarchical_coordinator.h"
#include "lmdbio/sync/control/horovod_coordinator.h"

namespace lmdbio::sync {

// The coordinators "topo" and "caramel" of SyncOptions are not made here. They are "cache" together
// with the plans of sync/graph, which need no coordinator.
Result<std::unique_ptr<Coordinator>> Coordinator::Create(const CoordinatorOptions& options,
                                                         const Ranks& ranks) {
  LMDBIO_TRY(const RankTopology layout, RankTopology::Create(ranks));
  std::unique_ptr<Coordinator> coordinator;
  if (options.kind == "horovod") {
    coordinator = std::make_unique<HorovodCoordinator>(layout, options.merge);
  } else if (options.kind == "cache") {
    coordinator = std::make_unique<CacheCoordinator>(layout, options.merge, options.cache_capacity);
  } else if (options.kind == "hierarchical") {
    coordinator = std::make_unique<HierarchicalCoordinator>(layout, options.merge);
  } else {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown coordinator '{}'; expected horovod, cache or hierarchical",
                            options.kind));
  }
  return coordinator;
}

}  // namespace lmdbio::sync
