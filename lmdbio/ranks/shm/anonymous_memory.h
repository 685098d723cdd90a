// lmdbio/ranks/shm/anonymous_memory.h - memory without a file or a name, for groups inside one
// process.
#ifndef LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_
#define LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_

#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::ranks {

// Zero-filled private pages, at a multiple of 2 MiB. A forked child sees zeros instead of their
// contents, if the kernel has MADV_WIPEONFORK. The pages are private, because most systems give
// private memory huge pages at its first touch (huge_pages.h).
// size_bytes  [may be 0]
// Errors: kResourceExhausted  no such amount of memory or address space
// Cost: six system calls; pages are allocated at their first touch
Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_ANONYMOUS_MEMORY_H_
