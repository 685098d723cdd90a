// lmdbio/ranks/shm/shared_memory.h - memory that the ranks of a host share.
//
// Source: docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_SHM_SHARED_MEMORY_H_
#define LMDBIO_RANKS_SHM_SHARED_MEMORY_H_

#include "lmdbio/base/types.h"

namespace lmdbio::ranks {

// Memory that all ranks of a host group share: zero-filled, page-aligned, at another address in
// each rank. It has no name while it is in use. So the kernel frees it when the last rank ends, in
// whatever way.
// Lifetime: an MPI window ends with MPI_Finalize, other memory with its last rank
class SharedMemory {
 public:
  // Releases it. Collective for an MPI window, unless the memory was abandoned or outlives
  // MPI_Finalize.
  virtual ~SharedMemory() = default;

  virtual MutableBytes bytes() const = 0;

  // From now on the destructor makes no collective call. The memory stays until MPI_Finalize or the
  // end of the process. For ranks whose peers have ended. A peer that still runs must abandon the
  // memory too, or its release waits for ever.
  virtual void Abandon() = 0;

  // One line for the user if the group could not use its preferred kind of memory: the kind that it
  // uses, and the reason. "" otherwise. All ranks have a note or none has.
  virtual std::string_view note() const { return {}; }
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_SHARED_MEMORY_H_
