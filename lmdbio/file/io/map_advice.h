// lmdbio/file/io/map_advice.h - hints to the kernel about the next reads from a map.
#ifndef LMDBIO_FILE_IO_MAP_ADVICE_H_
#define LMDBIO_FILE_IO_MAP_ADVICE_H_

#include <cstddef>
#include <cstdint>

#include "lmdbio/base/types.h"

namespace lmdbio::file {

// Asks the kernel to bring `extent` of `map` into the page cache, and does not wait. Bytes outside
// the map are ignored.
void AdviseWillNeed(Bytes map, Extent extent);

// Sleeps until the page of the byte at `offset` is in memory.
// Requires: the file still has that byte; otherwise the process ends with SIGBUS
inline void TouchByte(Bytes map, uint64_t offset) {
  const volatile std::byte* byte = &map[offset];
  static_cast<void>(*byte);
}

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_MAP_ADVICE_H_
