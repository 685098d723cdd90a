// lmdbio/ranks/shm/shared_memory.h - memory that the ranks of a host share.
//
// Source: docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_SHM_SHARED_MEMORY_H_
#define LMDBIO_RANKS_SHM_SHARED_MEMORY_H_

#include "lmdbio/base/types.h"

namespace lmdbio::ranks {

// Memory that all ranks of a host group see: zero-filled, page-aligned, at an address of its own in
// each rank. It has no name while it is in use, so it goes with the last rank, however that ends.
// Lifetime: a window of MPI's ends with MPI_Finalize, other memory with its last rank
class SharedMemory {
 public:
  // Releases it. Collective for a window of MPI's, unless the memory was abandoned or outlives
  // MPI_Finalize.
  virtual ~SharedMemory() = default;

  virtual MutableBytes bytes() const = 0;

  // From now on the destructor makes no collective call: the memory is left to MPI_Finalize or the
  // end of the process. For ranks whose peers are gone; a peer that is not must abandon it too, or
  // its release waits for ever.
  virtual void Abandon() = 0;

  // One line for the user if the group had to take another kind of memory than it prefers: which
  // one, and why. "" otherwise. All ranks have one or none has.
  virtual std::string_view note() const { return {}; }
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_SHARED_MEMORY_H_
