// Slots whose pages the ranks use in a map of the file.
//
// Nearly all of the file was in the page cache when the loader opened. Blocks with missing pages
// are read before their slot ends, into buffers that nobody uses: this brings them into the page
// cache, and a failure of the storage is an error of the read. Without it, a rank would sleep for
// each piece of the kernel's read-ahead, and a failure would be SIGBUS.
#include <utility>

#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/reader/staging_buffers.h"

namespace lmdbio::load {
namespace {

// After this many small blocks in a row that were all cached, only one of kTrustedBlocks is looked
// at. A look costs more than the rest of the planning of a small block.
constexpr uint64_t kTrustedAfterBlocks = 64;
constexpr uint64_t kTrustedBlocks = 8;
constexpr uint64_t kSmallBlockBytes = 64 << 10;

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
      ++slot.reads_left;
      buffers_.Add(blocks[i].file, ReadTag{slot.slot.number, i}.Pack());
    }
    return Continue();
  }

  // Bytes that cannot be read become bad ranges, which nobody will touch.
  Status Complete(SlotInFlight& slot, uint64_t index, const Status& read) override {
    const uint64_t tag = ReadTag{slot.slot.number, index}.Pack();
    --slot.reads_left;
    if (!read) {
      const Extent block = slot.slot.plan.blocks()[index].file;
      LMDBIO_TRY_VOID(parts_.repair.Tolerate(read.error()));
      LMDBIO_TRY_VOID(
          parts_.repair.Reread(slot.slot.number, buffers_.At(tag), {block, 0}, block.offset));
    }
    buffers_.Release(tag);
    return {};
  }

  Status Continue() override { return buffers_.Start(*parts_.engine); }

  Bytes memory() const override { return parts_.map->map(); }

 private:
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
};

}  // namespace

std::unique_ptr<SlotSource> MakeInPlaceSource(const InPlaceSourceParts& parts) {
  return std::make_unique<InPlaceSource>(parts);
}

}  // namespace lmdbio::load
