// lmdbio/file/map/map_advice.h - hints to the kernel about the next reads from a map.
#ifndef LMDBIO_FILE_MAP_MAP_ADVICE_H_
#define LMDBIO_FILE_MAP_MAP_ADVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lmdbio/base/align.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// Asks the kernel to bring `extent` of `map` into the page cache, and does not wait. Bytes outside
// the map are ignored.
void AdviseWillNeed(Bytes map, Extent extent);

// The part of a map of `map_bytes` that AdviseWillNeed names for `extent`: from the begin of a page
// of the memory, because madvise refuses other addresses, to the end of the extent or the map.
constexpr Extent AdvisedExtent(uint64_t map_bytes, Extent extent, uint64_t page_bytes) {
  const uint64_t offset = std::min(extent.offset, map_bytes);
  const uint64_t end = offset + std::min(extent.length_bytes, map_bytes - offset);
  const uint64_t begin = AlignDown(offset, page_bytes);
  return offset == end ? Extent{begin, 0} : Extent{begin, end - begin};
}

// Sleeps until the page of the byte at `offset` is in memory.
// Requires: the file still has that byte, or the map is guarded (map_guard.h)
inline void TouchByte(Bytes map, uint64_t offset) {
  const volatile std::byte* byte = &map[offset];
  static_cast<void>(*byte);
}

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_MAP_MAP_ADVICE_H_
