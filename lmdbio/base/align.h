// lmdbio/base/align.h - the units of memory, and rounding to a multiple of a unit.
#ifndef LMDBIO_BASE_ALIGN_H_
#define LMDBIO_BASE_ALIGN_H_

#include <cstdint>

namespace lmdbio {

// Threads that write to different cache lines do not slow each other down.
inline constexpr uint64_t kCacheLineBytes = 64;

// The memory page of this machine: 4 KiB on x86-64, and 4, 16 or 64 KiB on aarch64, as the kernel
// was built. It is the unit of maps, of madvise and of the page cache. Pages of an LMDB file and
// the alignment of direct reads are other units. All processes of a host have the same.
// Threads: any. Cost: one system call in the life of the process
uint64_t MemoryPageBytes();

// The largest memory page of all supported machines; a multiple of all others.
inline constexpr uint64_t kMemoryPageBytesMax = 64 << 10;

// The smallest multiple of `unit` that is at least `n`.
// Requires: unit > 0; n + unit does not overflow
constexpr uint64_t AlignUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// The largest multiple of `unit` that is at most `n`. Requires: unit > 0
constexpr uint64_t AlignDown(uint64_t n, uint64_t unit) { return n / unit * unit; }

}  // namespace lmdbio
#endif  // LMDBIO_BASE_ALIGN_H_
