// lmdbio/sync/over_wire/wire_chunks.h - divides memory into parts and chunks, and transfers them.
//
// A part belongs to one rank. A chunk is one message; the last chunk of a range may be shorter.
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/sync/collective/even_sizes.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::sync {

// The offsets at which consecutive parts begin, and the end of the last part.
using Bounds = std::vector<uint64_t>;

inline Bounds BoundsOf(std::span<const uint64_t> sizes, size_t element_bytes = 1) {
  Bounds bounds{0};
  for (const uint64_t size : sizes) bounds.push_back(bounds.back() + size * element_bytes);
  return bounds;
}

// Divides `count` elements into `part_count` parts of nearly the same size. The bounds are bytes.
inline Bounds EvenBounds(uint64_t count, size_t element_bytes, int part_count) {
  return BoundsOf(EvenSizes(count, part_count), element_bytes);
}

// Part `part` of the memory that begins at `data`.
inline MutableBytes PartOf(std::byte* data, const Bounds& bounds, int part) {
  const uint64_t* const at = &bounds[static_cast<size_t>(part)];
  return {data + at[0], at[1] - at[0]};
}

// Part `part` of values that are elsewhere.
inline ValueRange RangeOf(const Bounds& bounds, int part) {
  const uint64_t* const at = &bounds[static_cast<size_t>(part)];
  return {at[0], at[1] - at[0]};
}

// Rounds down to a multiple of 8, the size of the largest element; at least 8.
inline uint64_t WholeElements(uint64_t chunk_bytes) {
  return std::max<uint64_t>(chunk_bytes / 8 * 8, 8);
}

inline uint64_t ChunkCount(uint64_t bytes, uint64_t chunk_bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

// The largest chunk for which the direct algorithm has memory: it holds `chunk_depth` chunks of all
// ranks at once, in at most 32 MiB, unless chunks of 4 KiB need more.
inline uint64_t DirectChunkBytesMax(int rank_count, uint32_t chunk_depth) {
  constexpr uint64_t kScratchBytesMax = 32 << 20;
  constexpr uint64_t kLeastChunkBytes = 4 << 10;
  return std::max(kScratchBytesMax / (static_cast<uint64_t>(rank_count) * chunk_depth),
                  kLeastChunkBytes);
}

// Chunk number `chunk` of `run`; empty behind its end.
inline MutableBytes ChunkOf(MutableBytes run, uint64_t chunk, uint64_t chunk_bytes) {
  const uint64_t begin = std::min<uint64_t>(chunk * chunk_bytes, run.size());
  return run.subspan(begin, std::min<uint64_t>(chunk_bytes, run.size() - begin));
}

inline ValueRange ChunkOf(const ValueRange& run, uint64_t chunk, uint64_t chunk_bytes) {
  const uint64_t begin = std::min(chunk * chunk_bytes, run.size_bytes);
  return {run.begin + begin, std::min(chunk_bytes, run.size_bytes - begin)};
}

// Begins, or awaits, the transfers of all chunks of `run`.
// Errors of each: as Wire
Status StartSends(const WireJob& job, int to, MutableBytes run);
Status StartReceives(const WireJob& job, int from, MutableBytes run);
Status AwaitSends(const WireJob& job, int to, MutableBytes run);
Status AwaitReceives(const WireJob& job, int from, MutableBytes run);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_
