// lmdbio/kernels/gather_body.h - the kernel that copies values of a batch out of pinned memory into
// rows on the device.
//
// The host cuts values and the rests of their rows into pieces of a bounded size. A team of 32
// threads takes a piece at a time. The list of pieces lies in pinned memory, because a batch may
// have more of them than parameters of a kernel have room for.
#ifndef LMDBIO_KERNELS_GATHER_BODY_H_
#define LMDBIO_KERNELS_GATHER_BODY_H_

#include <cstddef>
#include <cstdint>

#include "lmdbio/kernels/copy_body.h"
#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::kernels {

inline constexpr uint32_t kGatherTeamThreads = 32;
inline constexpr uint64_t kGatherPieceBytes = 16384;  // at most, copied and filled together

struct GatherPiece {
  uint64_t from = 0;  // address
  uint64_t to = 0;
  uint32_t copy_bytes = 0;
  uint32_t fill_bytes = 0;  // of zeros behind the copy
};

// The parameter of the kernel.
struct GatherTable {
  uint64_t pieces = 0;  // address of an array
  uint64_t piece_count = 0;
};

// place.threads is a multiple of kGatherTeamThreads.
LMDBIO_HOST_DEVICE void GatherBody(const GatherTable& table, const KernelPlace& place) {
  const CopyTeam team{place.thread % kGatherTeamThreads, kGatherTeamThreads};
  const uint64_t teams = place.count() / kGatherTeamThreads;
  const auto* const pieces = reinterpret_cast<const GatherPiece*>(PointerOf(table.pieces));
  for (uint64_t p = place.index() / kGatherTeamThreads; p < table.piece_count; p += teams) {
    const GatherPiece piece = pieces[p];
    std::byte* const to = PointerOf(piece.to);
    CopyTogether(to, PointerOf(piece.from), piece.copy_bytes, PlainCopy{}, team);
    ClearTogether(to + piece.copy_bytes, piece.fill_bytes, team);
  }
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_GATHER_BODY_H_
