// lmdbio/comm/anonymous_memory.h - memory without a file or a name, for groups inside one process.
#ifndef LMDBIO_COMM_ANONYMOUS_MEMORY_H_
#define LMDBIO_COMM_ANONYMOUS_MEMORY_H_

#include <cstdint>
#include <memory>

#include "lmdbio/comm/group.h"

namespace lmdbio::comm {

// Zero-filled pages that the process shares with the children it forks later, if any.
// size_bytes  [may be 0]
// Errors: kResourceExhausted  no such amount of memory or address space
// Cost: one system call; pages are made when they are first touched
Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes);

}  // namespace lmdbio::comm
#endif  // LMDBIO_COMM_ANONYMOUS_MEMORY_H_
