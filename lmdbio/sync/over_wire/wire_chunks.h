// lmdbio/sync/over_wire/wire_chunks.h - how runs of bytes are cut, and sent and received in chunks.
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"

namespace lmdbio::sync {

// Where each of several parts begins in a run of all of them; one more for the end.
using Bounds = std::vector<uint64_t>;

// `count` elements in `part_count` parts of nearly the same size, in bytes.
inline Bounds EvenBounds(uint64_t count, size_t element_bytes, int part_count) {
  const auto parts = static_cast<uint64_t>(part_count);
  Bounds bounds;
  for (uint64_t part = 0; part <= parts; ++part) {
    bounds.push_back((count / parts * part + std::min(part, count % parts)) * element_bytes);
  }
  return bounds;
}

inline Bounds BoundsOf(std::span<const uint64_t> sizes, size_t element_bytes = 1) {
  Bounds bounds{0};
  for (const uint64_t size : sizes) bounds.push_back(bounds.back() + size * element_bytes);
  return bounds;
}

// `part` of the run that begins at `data`.
inline MutableBytes PartOf(std::byte* data, const Bounds& bounds, int part) {
  const uint64_t* const at = &bounds[static_cast<size_t>(part)];
  return {data + at[0], at[1] - at[0]};
}

// So many bytes are whole elements of any type.
inline uint64_t WholeElements(uint64_t chunk_bytes) {
  return std::max<uint64_t>(chunk_bytes / 8 * 8, 8);
}

inline uint64_t ChunkCount(uint64_t bytes, uint64_t chunk_bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

// A chunk of `run`; empty behind its end.
inline MutableBytes ChunkOf(MutableBytes run, uint64_t chunk, uint64_t chunk_bytes) {
  const uint64_t begin = std::min<uint64_t>(chunk * chunk_bytes, run.size());
  return run.subspan(begin, std::min<uint64_t>(chunk_bytes, run.size() - begin));
}

// All chunks of `run`, begun or awaited.
// Errors of each: as Wire
Status StartSends(const WireJob& job, int to, MutableBytes run);
Status StartReceives(const WireJob& job, int from, MutableBytes run);
Status AwaitSends(const WireJob& job, int to, MutableBytes run);
Status AwaitReceives(const WireJob& job, int from, MutableBytes run);

// run[i] = (run[i] op what comes from there) * scale
// Errors: as Wire
Status ReceiveAndReduce(const WireJob& job, int from, MutableBytes run, sync::DataType type,
                        const sync::Reduction& reduction);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_CHUNKS_H_
