// Slots whose pages the ranks use in a map of the file.
//
// Nearly all of the file was in the page cache when the loader opened. Blocks with missing pages
// are read before their slot ends, into buffers that nobody uses: this brings them into the page
// cache, and a failure of the storage is an error of the read. Without it, a rank would sleep for
// each piece of the kernel's read-ahead, and a failure would be SIGBUS.
//
// Missing pages usually lie together. Shuffled records would bring them one by one, so the first one
// brings its neighbours.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/reader/staging_buffers.h"

namespace lmdbio::load {
namespace {

// After this many small blocks in a row that were all cached, only one of kTrustedBlocks is looked
// at. A look costs more than the rest of the planning of a small block.
constexpr uint64_t kTrustedAfterBlocks = 64;
constexpr uint64_t kTrustedBlocks = 8;
constexpr uint64_t kSmallBlockBytes = 64 << 10;

constexpr uint64_t kNoSlot = ~uint64_t{0};

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
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!parts_.reads_missing) {
        parts_.map->Expect(blocks[i].file);
        continue;
      }
      if (IsThere(blocks[i].file)) continue;
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
    --slot.reads_left;
    if (!read) {
      // Other blocks of the slot may rely on this read.
      const Extent piece = PieceOf(slot.slot.plan.blocks()[index].file);
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
  // The piece of the file that a block lies in; the block itself if it is not read in pieces.
  Extent PieceOf(const Extent& block) const {
    const uint64_t piece_bytes = parts_.block_bytes_max;
    const uint64_t begin = block.offset / piece_bytes * piece_bytes;
    const bool is_inside = block.offset + block.length_bytes <= begin + piece_bytes;
    const bool is_small = block.length_bytes <= piece_bytes / 2;
    if (!parts_.reads_pieces || !is_inside || !is_small) return block;
    return {begin, std::min(piece_bytes, parts_.file_bytes - begin)};
  }

  // What `slot` has to read for a missing block. Nothing, if it waits for the whole piece already. A
  // piece that another slot has read may not have arrived yet, or is gone again.
  std::optional<Extent> ReadFor(const Extent& block, uint64_t slot) {
    const Extent piece = PieceOf(block);
    if (piece == block) return block;
    const uint64_t number = piece.offset / parts_.block_bytes_max;
    if (slot_of_piece_.size() <= number) slot_of_piece_.resize(number + 1, kNoSlot);
    if (slot_of_piece_[number] == slot) return std::nullopt;
    if (slot_of_piece_[number] != kNoSlot) return block;
    slot_of_piece_[number] = slot;
    return piece;
  }

  bool IsThere(const Extent& block) {
    if (block.length_bytes >= kSmallBlockBytes) return parts_.map->IsCached(block);
    const bool is_trusted = cached_blocks_ >= kTrustedAfterBlocks;
    if (is_trusted && ++unseen_blocks_ % kTrustedBlocks != 0) return true;
    const bool is_there = parts_.map->IsCached(block);
    cached_blocks_ = is_there ? cached_blocks_ + 1 : 0;
    return is_there;
  }

  InPlaceSourceParts parts_;
  StagingBuffers buffers_;
  uint64_t cached_blocks_ = 0;  // the last small ones in a row that were looked at and cached
  uint64_t unseen_blocks_ = 0;  // since trust began
  std::vector<uint64_t> slot_of_piece_;  // that read the piece; kNoSlot: none yet
};

}  // namespace

std::unique_ptr<SlotSource> MakeInPlaceSource(const InPlaceSourceParts& parts) {
  return std::make_unique<InPlaceSource>(parts);
}

}  // namespace lmdbio::load
