// A handle owns its result.
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::sync {

Handle Finished();

std::byte FirstByte() {
#ifdef LMDBIO_BAD
  const Bytes result = Finished().result();
#else
  const Handle handle = Finished();
  const Bytes result = handle.result();
#endif
  return result.front();
}

}  // namespace lmdbio::sync
