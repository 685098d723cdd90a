// lmdbio/kernels/gather_body.h - the kernel that copies values of a batch out of pinned memory into
// rows on the device.
//
// The host cuts values and the rests of their rows into pieces of a bounded size. A team of 32
// threads takes a piece at a time. The list of pieces lies in pinned memory, because a batch may
// have more of them than parameters of a kernel have room for.
//
// Loads pass a bus, which is much slower than memory of the device. So a word of the source is
// loaded once and aligned, and neighbours load the words of one line. Stores are narrower where the
// row has another alignment. (CopyTogether does the reverse, for memory of the device.)
#ifndef LMDBIO_KERNELS_GATHER_BODY_H_
#define LMDBIO_KERNELS_GATHER_BODY_H_

#include <cstddef>
#include <cstdint>

#include "lmdbio/kernels/copy_body.h"
#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::kernels {

inline constexpr uint32_t kGatherTeamThreads = 32;
inline constexpr uint64_t kGatherPieceBytes = 4096;  // at most, copied and filled together
inline constexpr uint32_t kLineWords = 8;  // of 128 bytes, the most that a bus reads at once
inline constexpr unsigned kGatherWordsAtOnce = 2;     // loads that a thread has under way
inline constexpr uint32_t kGatherBlockThreads = 128;  // few, so that pieces use all multiprocessors

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

// Stores 8 bytes as numbers of the type Part.
template <typename Part>
LMDBIO_HOST_DEVICE void StorePartsOf(std::byte* to, uint64_t bits) {
  LMDBIO_KERNEL_UNROLL
  for (unsigned i = 0; i < sizeof(bits) / sizeof(Part); ++i) {
    StoreBits(to + i * sizeof(Part), static_cast<Part>(bits >> (8 * sizeof(Part) * i)));
  }
}

// Stores a word in pieces that are aligned.
LMDBIO_HOST_DEVICE void StorePieces(std::byte* to, const KernelWord& word) {
  const uint64_t past = PastWord(to);
  if (past == 0) return StoreWord(to, word);
  const uint64_t halves[2] = {word.low, word.high};
  LMDBIO_KERNEL_UNROLL
  for (unsigned h = 0; h < 2; ++h) {
    std::byte* const at = to + 8 * h;
    if (past % 8 == 0) {
      StoreBits(at, halves[h]);
    } else if (past % 4 == 0) {
      StorePartsOf<uint32_t>(at, halves[h]);
    } else if (past % 2 == 0) {
      StorePartsOf<uint16_t>(at, halves[h]);
    } else {
      StorePartsOf<uint8_t>(at, halves[h]);
    }
  }
}

// Copies with loads of whole lines: aligned words of the source, each once. Bytes before the first
// whole word and behind the last one are copied one by one.
LMDBIO_HOST_DEVICE void GatherTogether(std::byte* to, const std::byte* from, uint64_t size_bytes,
                                       const CopyTeam& team) {
  const uint64_t to_word = (kWordBytes - PastWord(from)) % kWordBytes;
  const uint64_t head = to_word < size_bytes ? to_word : size_bytes;
  const uint64_t words = (size_bytes - head) / kWordBytes;
  const std::byte* const source = from + head;
  // Threads begin at a line, though the first words of it may not be wanted.
  const uint64_t skipped = reinterpret_cast<uint64_t>(source) / kWordBytes % kLineWords;
  for (uint64_t w = team.thread; w < skipped + words;
       w += uint64_t{kGatherWordsAtOnce} * team.threads) {
    KernelWord loaded[kGatherWordsAtOnce];
    LMDBIO_KERNEL_UNROLL
    for (unsigned k = 0; k < kGatherWordsAtOnce; ++k) {
      const uint64_t index = w + uint64_t{k} * team.threads;
      if (index < skipped || index >= skipped + words) continue;
      loaded[k] = LoadWord(source + (index - skipped) * kWordBytes);
    }
    LMDBIO_KERNEL_UNROLL
    for (unsigned k = 0; k < kGatherWordsAtOnce; ++k) {
      const uint64_t index = w + uint64_t{k} * team.threads;
      if (index < skipped || index >= skipped + words) continue;
      StorePieces(to + head + (index - skipped) * kWordBytes, loaded[k]);
    }
  }
  const uint64_t in_words = words * kWordBytes;
  for (uint64_t i = team.thread; i < size_bytes - in_words; i += team.threads) {
    const uint64_t at = i < head ? i : i + in_words;
    to[at] = from[at];
  }
}

// place.threads is a multiple of kGatherTeamThreads.
LMDBIO_HOST_DEVICE void GatherBody(const GatherTable& table, const KernelPlace& place) {
  const CopyTeam team{place.thread % kGatherTeamThreads, kGatherTeamThreads};
  const uint64_t teams = place.count() / kGatherTeamThreads;
  const auto* const pieces = reinterpret_cast<const GatherPiece*>(PointerOf(table.pieces));
  for (uint64_t p = place.index() / kGatherTeamThreads; p < table.piece_count; p += teams) {
    const GatherPiece piece = pieces[p];
    std::byte* const to = PointerOf(piece.to);
    GatherTogether(to, PointerOf(piece.from), piece.copy_bytes, team);
    ClearTogether(to + piece.copy_bytes, piece.fill_bytes, team);
  }
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_GATHER_BODY_H_
