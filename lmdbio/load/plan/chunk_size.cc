#include "lmdbio/load/plan/chunk_size.h"

#include <algorithm>

#include "lmdbio/base/align.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {
namespace {

constexpr double kSaturatedShare = 0.95;
constexpr uint64_t kChunksMost = 8;  // in the budget
constexpr uint64_t kChunksLeast = 4;

// Engines read at most so much at once, and Figure 5.1 ends here.
constexpr uint64_t kReadBytesMax = uint64_t{1} << 30;

// A larger size has no meaning: no budget reaches it.
constexpr double kSaturatingBytesMax = 1e15;

}  // namespace

uint64_t SaturatingBytes(const ReadCost& cost) {
  if (cost.request_s <= 0) return 0;
  const double request_bytes = cost.request_s / std::max(cost.byte_s, 1e-15);
  return static_cast<uint64_t>(
      std::min(request_bytes * kSaturatedShare / (1 - kSaturatedShare), kSaturatingBytesMax));
}

uint64_t ChunkBytes(uint64_t budget_bytes, const ReadCost& cost) {
  return std::clamp(SaturatingBytes(cost), budget_bytes / kChunksMost, budget_bytes / kChunksLeast);
}

uint64_t ChunkReadBytes(uint64_t chunk_bytes, uint64_t group_bytes, uint64_t reader_count) {
  const uint64_t part_bytes = (chunk_bytes + group_bytes) / reader_count;
  return std::clamp(AlignUp(part_bytes, kStretchAlignBytes), kStretchAlignBytes, kReadBytesMax);
}

}  // namespace lmdbio::load
