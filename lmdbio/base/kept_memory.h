// lmdbio/base/kept_memory.h - memory that is never freed, on purpose.
//
// When lmdbio abandons an MPI call, MPI may still write to the memory of the call until
// MPI_Finalize. Such memory is kept until the process ends.
#ifndef LMDBIO_BASE_KEPT_MEMORY_H_
#define LMDBIO_BASE_KEPT_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

namespace lmdbio {

// Keeps `memory` until the process ends.
// Threads: any
void KeepShared(std::shared_ptr<void> memory);

// Keeps the memory that `memory` owns at its address: the elements of a vector, or the object of a
// smart pointer.
template <typename Owner>
void KeepForever(Owner memory) {
  KeepShared(std::make_shared<Owner>(std::move(memory)));
}

// The number of objects kept so far.
size_t KeptCount();

}  // namespace lmdbio
#endif  // LMDBIO_BASE_KEPT_MEMORY_H_
