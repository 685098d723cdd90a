#include "lmdbio/load/reader/file_pieces.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/align.h"

namespace lmdbio::load {

FilePieces::FilePieces(uint64_t piece_bytes, uint64_t file_bytes, Look look)
    : piece_bytes_(piece_bytes), file_bytes_(file_bytes), look_(std::move(look)) {}

bool FilePieces::Contains(const Extent& block) const {
  return block.length_bytes <= piece_bytes_ / 2 &&
         block.offset % piece_bytes_ + block.length_bytes <= piece_bytes_;
}

Extent FilePieces::Around(const Extent& block) const {
  const uint64_t begin = AlignDown(block.offset, piece_bytes_);
  return {begin, std::min(piece_bytes_, file_bytes_ - begin)};
}

FilePieces::FilePiece& FilePieces::PieceOf(const Extent& block) {
  const uint64_t number = block.offset / piece_bytes_;
  if (pieces_.size() <= number) pieces_.resize(number + 1);
  return pieces_[number];
}

bool FilePieces::IsThere(const Extent& block, Clock::time_point now) {
  if (!Contains(block)) return look_(block);
  FilePiece& piece = PieceOf(block);
  if (piece.state == PieceState::kBeingRead || piece.state == PieceState::kFailed) return false;
  if (now - kTrust >= piece.looked_at) {
    piece.looked_at = now;
    piece.was_cached = look_(Around(block));
  }
  return piece.was_cached || look_(block);
}

std::optional<Extent> FilePieces::BeginRead(const Extent& block, uint64_t slot) {
  FilePiece& piece = PieceOf(block);
  if (piece.state == PieceState::kBeingRead && piece.slot == slot) return std::nullopt;
  if (piece.state != PieceState::kUnread) return block;
  piece.state = PieceState::kBeingRead;
  piece.slot = slot;
  return Around(block);
}

void FilePieces::EndRead(const Extent& block, uint64_t slot, const Status& read) {
  FilePiece& piece = PieceOf(block);
  if (!read) piece.state = PieceState::kFailed;
  if (piece.state == PieceState::kBeingRead && piece.slot == slot) piece.state = PieceState::kRead;
}

}  // namespace lmdbio::load
