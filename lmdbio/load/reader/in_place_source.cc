// Slots whose pages the ranks use in a map of the file.
//
// Much of the file was in the page cache when the loader opened. Blocks with missing pages are read
// before their slot ends, into buffers that nobody uses. This brings them into the page cache, and
// a failure of the storage is an error of the read. Without it, a rank would sleep for each part of
// the kernel's read-ahead, and would find a failure only after it has used the batch.
#include <optional>

#include "lmdbio/load/reader/file_pieces.h"
#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/reader/staging_buffers.h"

namespace lmdbio::load {
namespace {

class InPlaceSource final : public SlotSource {
 public:
  explicit InPlaceSource(const InPlaceSourceParts& parts)
      : parts_(parts),
        buffers_(parts.block_bytes_max),
        pieces_(parts.block_bytes_max, parts.file_bytes,
                [map = parts.map](const Extent& bytes) { return map->IsCached(bytes); }) {}

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
    const auto now = FilePieces::Clock::now();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!parts_.reads_missing) {
        parts_.map->Expect(blocks[i].file);
        continue;
      }
      if (pieces_.IsThere(blocks[i].file, now)) continue;
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
    if (pieces_.Contains(block)) pieces_.EndRead(block, slot.slot.number, read);
    if (!read) {
      // Other blocks of the slot may rely on this read.
      const Extent piece = IsReadWithPiece(block) ? pieces_.Around(block) : block;
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
  bool IsReadWithPiece(const Extent& block) const {
    return parts_.reads_pieces && pieces_.Contains(block);
  }

  // The bytes that `slot` has to read for a missing block; none, if it reads them already.
  std::optional<Extent> ReadFor(const Extent& block, uint64_t slot) {
    return IsReadWithPiece(block) ? pieces_.BeginRead(block, slot) : block;
  }

  InPlaceSourceParts parts_;
  StagingBuffers buffers_;
  FilePieces pieces_;  // of the size of the largest block
};

}  // namespace

std::unique_ptr<SlotSource> MakeInPlaceSource(const InPlaceSourceParts& parts) {
  return std::make_unique<InPlaceSource>(parts);
}

}  // namespace lmdbio::load
