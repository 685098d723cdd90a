#include "lmdbio/load/plan/strategy.h"

#include <string>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::load {

const StrategyTraits& CompositionOf(Strategy strategy) {
  for (const StrategyTraits& row : kStrategies) {
    if (row.strategy == strategy) return row;
  }
  LMDBIO_CHECK(false);
  return kStrategies.back();
}

Result<Strategy> ParseStrategy(std::string_view name) {
  std::string known;
  for (const StrategyTraits& row : kStrategies) {
    if (row.name == name) return row.strategy;
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("strategy '{}' is unknown; expected one of {}", name, known));
}

}  // namespace lmdbio::load
