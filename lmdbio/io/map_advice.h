// lmdbio/io/map_advice.h - telling the kernel what of a map will be read.
#ifndef LMDBIO_IO_MAP_ADVICE_H_
#define LMDBIO_IO_MAP_ADVICE_H_

#include "lmdbio/base/types.h"

namespace lmdbio::io {

// Asks the kernel to bring `extent` of `map` into the page cache, and does not wait. What lies
// outside of the map is left out.
void AdviseWillNeed(Bytes map, Extent extent);

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_MAP_ADVICE_H_
