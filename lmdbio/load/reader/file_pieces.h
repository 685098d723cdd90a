// lmdbio/load/reader/file_pieces.h - what a reader knows about the pieces of a file that is used in
// place: when each was last in the page cache, and which slot reads it.
//
// A look at a small block takes longer than the rest of its planning, so small blocks are looked at
// by pieces. Missing pages usually lie together, and shuffled records would bring them one by one,
// so the first missing block of a piece can bring all of it.
//
// Source: docs/loader.md "Cached files".
#ifndef LMDBIO_LOAD_READER_FILE_PIECES_H_
#define LMDBIO_LOAD_READER_FILE_PIECES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::load {

// Threads: one at a time.
class FilePieces {
 public:
  using Clock = std::chrono::steady_clock;
  // Whether all pages of some bytes are in the page cache.
  using Look = std::function<bool(const Extent& bytes)>;

  // A piece that was cached is not looked at again for this long.
  static constexpr std::chrono::seconds kTrust{1};

  // piece_bytes  [> 0]
  // look         its captured objects outlive the pieces
  FilePieces(uint64_t piece_bytes, uint64_t file_bytes, Look look);

  // Whether the block is at most half a piece, and part of one. Other blocks concern no piece.
  bool Contains(const Extent& block) const;

  // The bytes of the block's piece; the last piece of the file may be shorter.
  // Requires: Contains(block)
  Extent Around(const Extent& block) const;

  // Whether the block is in the page cache. The kernel also counts pages that are on their way, and
  // those that could not be read, so a piece whose read has not succeeded is not there.
  bool IsThere(const Extent& block, Clock::time_point now);

  // The bytes that `slot` has to read for a missing block: the whole piece at first, later the
  // block. None, if the slot reads the piece already. While another slot reads it, a read of the
  // block waits for the same pages.
  // Requires: Contains(block)
  std::optional<Extent> BeginRead(const Extent& block, uint64_t slot);

  // The read of `slot` for the block has ended. After a failure, blocks of the piece are read one
  // by one.
  // Requires: Contains(block)
  void EndRead(const Extent& block, uint64_t slot, const Status& read);

 private:
  enum class PieceState { kUnread, kBeingRead, kRead, kFailed };
  struct FilePiece {
    Clock::time_point looked_at = Clock::time_point::min();
    bool was_cached = false;  // all of it, at that time
    PieceState state = PieceState::kUnread;
    uint64_t slot = 0;  // that reads all of it
  };

  FilePiece& PieceOf(const Extent& block);

  uint64_t piece_bytes_;
  uint64_t file_bytes_;
  Look look_;
  std::vector<FilePiece> pieces_;  // by number, as far as blocks were looked at
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_FILE_PIECES_H_
