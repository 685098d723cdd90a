// lmdbio/base/align.h - the units of memory, and rounding to a multiple of a unit.
#ifndef LMDBIO_BASE_ALIGN_H_
#define LMDBIO_BASE_ALIGN_H_

#include <cstdint>

namespace lmdbio {

// Threads that write to different cache lines do not slow each other down.
inline constexpr uint64_t kCacheLineBytes = 64;

// The memory page of every supported machine. The pages of an LMDB file may be larger.
inline constexpr uint64_t kMemoryPageBytes = 4096;

// The smallest multiple of `unit` that is at least `n`.
// Requires: unit > 0; n + unit does not overflow
constexpr uint64_t AlignUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// The largest multiple of `unit` that is at most `n`. Requires: unit > 0
constexpr uint64_t AlignDown(uint64_t n, uint64_t unit) { return n / unit * unit; }

}  // namespace lmdbio
#endif  // LMDBIO_BASE_ALIGN_H_
