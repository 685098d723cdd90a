#include "lmdbio/ranks/shm/aligned_space.h"

#include <sys/mman.h>

#include <cerrno>

namespace lmdbio::ranks {

// Reserves enough to contain an aligned start, and unmaps the rest at both ends.
std::byte* ReserveAligned(uint64_t bytes) {
  if (bytes > ~uint64_t{0} - kHugePageBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const reserved = ::mmap(nullptr, bytes + kHugePageBytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(reserved);
  const uint64_t before = -reinterpret_cast<uintptr_t>(first) % kHugePageBytes;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + bytes, kHugePageBytes - before);
  return first + before;
}

}  // namespace lmdbio::ranks
