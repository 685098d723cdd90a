// lmdbio/base/kept_memory.h - memory that outlives those who made it.
//
// A call of MPI's that is waited for no longer goes on, and may write to its memory until MPI has
// ended. Such memory is never freed, on purpose.
#ifndef LMDBIO_BASE_KEPT_MEMORY_H_
#define LMDBIO_BASE_KEPT_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

namespace lmdbio {

// Threads: any. Cost: the memory, until the process ends
void KeepShared(std::shared_ptr<void> memory);

// Keeps what `memory` owns where it is: a vector's elements, or what a pointer points to.
template <typename Owner>
void KeepForever(Owner memory) {
  KeepShared(std::make_shared<Owner>(std::move(memory)));
}

// How many have been kept.
size_t KeptCount();

}  // namespace lmdbio
#endif  // LMDBIO_BASE_KEPT_MEMORY_H_
