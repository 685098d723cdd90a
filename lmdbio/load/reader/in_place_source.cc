// Slots whose pages the ranks use in a map of the file.
//
// Nearly all of the file was in the page cache when the loader opened. Blocks with missing pages
// are read before their slot ends, into buffers that nobody uses: this brings them into the page
// cache, and a failure of the storage is an error of the read. Without it, a rank would sleep for
// each part of the kernel's read-ahead, and a failure would be SIGBUS.
//
// Missing pages usually lie together. Shuffled records would bring them one by one, so the first
// one brings its neighbours.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "lmdbio/base/align.h"
#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/reader/staging_buffers.h"

namespace lmdbio::load {
namespace {

using Clock = std::chrono::steady_clock;

// A look at a small block takes longer than the rest of its planning. So small blocks are looked at
// by pieces of the file, and a piece that was cached is not looked at again for this long.
constexpr auto kTrust = std::chrono::seconds(1);

class InPlaceSource final : public SlotSource {
 public:
  explicit InPlaceSource(const InPlaceSourceParts& parts)
      : parts_(parts), buffers_(parts.block_bytes_max) {}

  void Plan(SlotInFlight& slot) override {
    BlockCut cut;
    cut.part = parts_.part;
    cut.part_count = parts_.part_count;
    slot.slot.plan.CutBlocks(cut);
    slot.read_bytes = slot.slot.plan.read_bytes();
  }

  Status Begin(SlotInFlight& slot) override {
    LMDBIO_TRY_VOID(parts_.map->CheckNotShrunk(parts_.file_bytes));
    slot.reads_left = 0;
    const std::span<const PlannedBlock> blocks = slot.slot.plan.blocks();
    const auto now = Clock::now();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!parts_.reads_missing) {
        parts_.map->Expect(blocks[i].file);
        continue;
      }
      if (IsThere(blocks[i].file, now)) continue;
      const std::optional<Extent> read = ReadFor(blocks[i].file, slot.slot.number);
      if (!read) continue;
      ++slot.reads_left;
      buffers_.Add(*read, ReadTag{slot.slot.number, i}.Pack());
    }
    return Continue();
  }

  // Bytes that cannot be read become bad ranges, which nobody will touch.
  Status Complete(SlotInFlight& slot, uint64_t index, const Status& read) override {
    const uint64_t tag = ReadTag{slot.slot.number, index}.Pack();
    const Extent block = slot.slot.plan.blocks()[index].file;
    --slot.reads_left;
    if (IsInPiece(block)) {
      FilePiece& piece = PieceOf(block);
      if (!read) piece.state = PieceState::kFailed;
      if (piece.state == PieceState::kBeingRead && piece.slot == slot.slot.number) {
        piece.state = PieceState::kRead;
      }
    }
    if (!read) {
      // Other blocks of the slot may rely on this read.
      const Extent piece = IsReadWithPiece(block) ? Around(block) : block;
      LMDBIO_TRY_VOID(parts_.repair.Tolerate(read.error()));
      LMDBIO_TRY_VOID(
          parts_.repair.Reread(slot.slot.number, buffers_.At(tag), {piece, 0}, piece.offset));
    }
    buffers_.Release(tag);
    return {};
  }

  Status Continue() override { return buffers_.Start(*parts_.engine); }

  Bytes memory() const override { return parts_.map->map(); }

 private:
  enum class PieceState {
    kUnread,
    kBeingRead,
    kRead,
    kFailed,  // its blocks are read one by one
  };
  // A piece has the size of the largest block.
  struct FilePiece {
    Clock::time_point looked_at = Clock::time_point::min();
    bool was_cached = false;  // all of it, at that time
    PieceState state = PieceState::kUnread;
    uint64_t slot = 0;  // that reads all of it
  };

  // Whether the block is a small part of one piece.
  bool IsInPiece(const Extent& block) const {
    const uint64_t piece_bytes = parts_.block_bytes_max;
    return block.length_bytes <= piece_bytes / 2 &&
           block.offset % piece_bytes + block.length_bytes <= piece_bytes;
  }

  FilePiece& PieceOf(const Extent& block) {
    const uint64_t number = block.offset / parts_.block_bytes_max;
    if (pieces_.size() <= number) pieces_.resize(number + 1);
    return pieces_[number];
  }

  // The bytes of the piece. Requires: IsInPiece(block)
  Extent Around(const Extent& block) const {
    const uint64_t begin = AlignDown(block.offset, parts_.block_bytes_max);
    return {begin, std::min(parts_.block_bytes_max, parts_.file_bytes - begin)};
  }

  bool IsReadWithPiece(const Extent& block) const {
    return parts_.reads_pieces && IsInPiece(block);
  }

  // The bytes that `slot` has to read for a missing block. None, if it waits for the whole piece
  // already. While another slot reads the piece, a read of the block waits for the same pages.
  std::optional<Extent> ReadFor(const Extent& block, uint64_t slot) {
    if (!IsReadWithPiece(block)) return block;
    FilePiece& piece = PieceOf(block);
    if (piece.state == PieceState::kBeingRead && piece.slot == slot) return std::nullopt;
    if (piece.state != PieceState::kUnread) return block;
    piece.state = PieceState::kBeingRead;
    piece.slot = slot;
    return Around(block);
  }

  // The kernel counts pages as cached that are on their way, and those that could not be read.
  bool IsThere(const Extent& block, Clock::time_point now) {
    if (!IsInPiece(block)) return parts_.map->IsCached(block);
    FilePiece& piece = PieceOf(block);
    if (piece.state == PieceState::kBeingRead || piece.state == PieceState::kFailed) return false;
    if (now - kTrust >= piece.looked_at) {
      piece.looked_at = now;
      piece.was_cached = parts_.map->IsCached(Around(block));
    }
    return piece.was_cached || parts_.map->IsCached(block);
  }

  InPlaceSourceParts parts_;
  StagingBuffers buffers_;
  std::vector<FilePiece> pieces_;  // by number, as far as blocks were looked at
};

}  // namespace

std::unique_ptr<SlotSource> MakeInPlaceSource(const InPlaceSourceParts& parts) {
  return std::make_unique<InPlaceSource>(parts);
}

}  // namespace lmdbio::load
