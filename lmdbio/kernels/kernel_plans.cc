#include "lmdbio/kernels/kernel_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace lmdbio::kernels {
namespace {

constexpr uint32_t kThreadsAtOnce = 2048;  // of a multiprocessor, at most

Status CheckType(sync::DataType type) {
  if (sync::IsDataType(static_cast<uint8_t>(type))) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("data type number {} is unknown", static_cast<int>(type)));
}

}  // namespace

device::LaunchShape ShapeOf(uint64_t units, int multiprocessors, uint32_t blocks_max,
                            uint32_t turns, uint32_t threads) {
  uint64_t blocks = uint64_t{kThreadsAtOnce / threads} * turns *
                    static_cast<uint64_t>(std::max(multiprocessors, 1));
  if (blocks_max != 0) blocks = std::min<uint64_t>(blocks, blocks_max);
  blocks = std::clamp<uint64_t>(units, 1, blocks);
  return {.blocks = static_cast<uint32_t>(blocks), .threads = threads};
}

Result<KernelScale> PlanScale(sync::DataType type, double scale) {
  LMDBIO_TRY_VOID(CheckType(type));
  KernelScale planned;
  planned.number = scale;
  planned.single = static_cast<float>(scale);
  planned.is_one = scale == 1 ? 1 : 0;
  if (sync::IsFloating(type)) return planned;
  if (!std::isfinite(scale)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} values cannot be scaled by {}", sync::NameOf(type), scale));
  }
  planned.parts = sync::ScalePartsOf(scale);
  return planned;
}

}  // namespace lmdbio::kernels
