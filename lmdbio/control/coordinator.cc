#include "lmdbio/control/coordinator.h"

#include <fmt/format.h>

#include "lmdbio/control/cache_coordinator.h"
#include "lmdbio/control/hierarchical_coordinator.h"
#include "lmdbio/control/horovod_coordinator.h"

namespace lmdbio::control {

Result<std::unique_ptr<Coordinator>> Coordinator::Create(const CoordinatorOptions& options,
                                                         const Ranks& ranks) {
  LMDBIO_TRY(const RankLayout layout, RankLayout::Create(ranks));
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

}  // namespace lmdbio::control
