// lmdbio/base/align.h - rounds a number up to a multiple of a unit.
#ifndef LMDBIO_BASE_ALIGN_H_
#define LMDBIO_BASE_ALIGN_H_

#include <cstdint>

namespace lmdbio {

// The smallest multiple of `unit` that is at least `n`.
// Requires: unit > 0; n + unit does not overflow
constexpr uint64_t AlignUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace lmdbio
#endif  // LMDBIO_BASE_ALIGN_H_
