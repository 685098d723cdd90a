// lmdbio/ranks/shm/aligned_space.h - address space at a multiple of 2 MiB, so that the kernel can
// use huge pages.
#ifndef LMDBIO_RANKS_SHM_ALIGNED_SPACE_H_
#define LMDBIO_RANKS_SHM_ALIGNED_SPACE_H_

#include <cstddef>
#include <cstdint>

namespace lmdbio::ranks {

// A huge page of every machine whose small pages have 4 KiB.
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// Reserves `bytes` of address space without memory; the caller maps over it with MAP_FIXED.
// bytes  [a multiple of the page size, > 0]
// Returns: the address, to be released by munmap; null with errno set if there is no such space
std::byte* ReserveAligned(uint64_t bytes);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_ALIGNED_SPACE_H_
