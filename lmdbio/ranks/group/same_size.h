// lmdbio/ranks/group/same_size.h - checks that all ranks request the same amount of shared memory.
#ifndef LMDBIO_RANKS_GROUP_SAME_SIZE_H_
#define LMDBIO_RANKS_GROUP_SAME_SIZE_H_

#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// MPI creates a window of the size that its owner passes, and does not compare. A rank that assumes
// a larger window would overwrite the memory behind it.
// asked_bytes  [ranks] the requested sizes
// Errors: kInvalidArgument  they differ
inline Status CheckSameSize(std::span<const uint64_t> asked_bytes) {
  for (size_t rank = 1; rank < asked_bytes.size(); ++rank) {
    if (asked_bytes[rank] == asked_bytes[0]) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} asks for {} bytes of shared memory, rank 0 for {}", rank,
                            asked_bytes[rank], asked_bytes[0]));
  }
  return {};
}

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_SAME_SIZE_H_
