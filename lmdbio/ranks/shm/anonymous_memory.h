// lmdbio/ranks/shm/anonymous_memory.h - memory without a file or a name, for groups inside one
// process.
#ifndef LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_
#define LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_

#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::ranks {

// Zero-filled private pages. A forked child sees zeros instead of their contents, if the kernel has
// MADV_WIPEONFORK. The pages are private, because the kernel by default gives huge pages only to
// private memory. Direct reads into huge pages are up to 1.4 times as fast, and take a third less
// processor time.
// size_bytes  [may be 0]
// Errors: kResourceExhausted  no such amount of memory or address space
// Cost: three system calls; pages are allocated at their first touch
Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_
