#include "lmdbio/sync/on_device/staged_chunks.h"

#include <algorithm>
#include <utility>

namespace lmdbio::sync {

StagedChunks::StagedChunks(std::vector<uint64_t> offsets, std::vector<uint64_t> sizes,
                           uint64_t chunk_bytes)
    : offsets_(std::move(offsets)),
      sizes_(std::move(sizes)),
      chunk_bytes_(chunk_bytes),
      total_bytes_(offsets_.empty() ? 0 : offsets_.back() + sizes_.back()) {}

uint64_t StagedChunks::count() const {
  return total_bytes_ == 0 ? 1 : (total_bytes_ - 1) / chunk_bytes_ + 1;
}

uint64_t StagedChunks::BytesOf(uint64_t chunk) const {
  return std::min(chunk_bytes_, total_bytes_ - chunk * chunk_bytes_);
}

std::vector<StagedPart> StagedChunks::PartsOf(uint64_t chunk) const {
  const uint64_t begin = chunk * chunk_bytes_;
  const uint64_t end = begin + BytesOf(chunk);
  // The last tensor that begins at or before the chunk may reach into it.
  const auto after = std::upper_bound(offsets_.begin(), offsets_.end(), begin);
  auto tensor = static_cast<size_t>(after - offsets_.begin());
  if (tensor > 0) --tensor;
  std::vector<StagedPart> parts;
  for (; tensor < offsets_.size() && offsets_[tensor] < end; ++tensor) {
    const uint64_t from = std::max(begin, offsets_[tensor]);
    const uint64_t to = std::min(end, offsets_[tensor] + sizes_[tensor]);
    if (from >= to) continue;
    parts.push_back({tensor, from - offsets_[tensor], from - begin, to - from});
  }
  return parts;
}

}  // namespace lmdbio::sync
