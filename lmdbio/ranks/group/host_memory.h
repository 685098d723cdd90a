// lmdbio/ranks/group/host_memory.h - memory that the processes of a host share, without MPI.
//
// Rank 0 creates a memory file (memory_file.h) and passes its descriptor to the others over Unix
// sockets (descriptor_inbox.h). All ranks map it. The memory never has a name, so a rank that is
// killed at any moment leaves nothing behind.
//
// Source: dissertation 3.2.1; docs/loader.md "The window".
#ifndef LMDBIO_RANKS_GROUP_HOST_MEMORY_H_
#define LMDBIO_RANKS_GROUP_HOST_MEMORY_H_

#include <cstdint>
#include <memory>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// Collective; see Group::AllocateShared. The memory lives as long as a rank maps it, and its
// release is not collective.
// Errors, with one code on all ranks:
//         kInvalidArgument    the ranks request different sizes
//         kResourceExhausted  not so much memory or address space, or no descriptor is left
//         kUnsupported        the system of a rank refuses the file or its transfer to the rank;
//                             names the rank, the call and the reason. Another kind of memory may
//                             work
//         kInternal           the group failed
// Cost: three allgathers of some hundred bytes, and ten system calls for each rank
Result<std::unique_ptr<SharedMemory>> AllocateHostMemory(Group& group, uint64_t size_bytes);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_HOST_MEMORY_H_
