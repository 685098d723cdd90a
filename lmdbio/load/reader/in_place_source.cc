// Slots whose pages the ranks use in a map of the file.
//
// The file was in the page cache when the loader opened. Pages that the kernel has evicted since
// are requested ahead of their use.
#include <utility>

#include "lmdbio/load/reader/slot_source.h"

namespace lmdbio::load {
namespace {

// After this many small blocks in a row that were all cached, only one of kTrustedBlocks is looked
// at. A look costs more than the rest of the planning of a small block.
constexpr uint64_t kTrustedAfterBlocks = 64;
constexpr uint64_t kTrustedBlocks = 8;
constexpr uint64_t kSmallBlockBytes = 64 << 10;

class InPlaceSource final : public SlotSource {
 public:
  InPlaceSource(const file::MapSource& map, uint64_t file_bytes, size_t part, size_t part_count)
      : map_(map), file_bytes_(file_bytes), part_(part), part_count_(part_count) {}

  void Plan(SlotInFlight& slot) override {
    BlockCut cut;
    cut.part = part_;
    cut.part_count = part_count_;
    slot.slot.plan.CutBlocks(cut);
    slot.read_bytes = slot.slot.plan.read_bytes();
  }

  Status Begin(SlotInFlight& slot) override {
    for (const PlannedBlock& block : slot.slot.plan.blocks()) {
      if (block.file.length_bytes >= kSmallBlockBytes) {
        map_.Expect(block.file);
        continue;
      }
      const bool is_trusted = cached_blocks_ >= kTrustedAfterBlocks;
      if (is_trusted && ++unseen_blocks_ % kTrustedBlocks != 0) continue;
      cached_blocks_ = map_.Expect(block.file) ? cached_blocks_ + 1 : 0;
    }
    slot.reads_left = 0;
    return map_.CheckNotShrunk(file_bytes_);
  }

  // Begin starts no read.
  Status Complete(SlotInFlight& /*slot*/, uint64_t /*index*/, const Status& /*read*/) override {
    return {};
  }

  Bytes memory() const override { return map_.map(); }

 private:
  const file::MapSource& map_;
  uint64_t file_bytes_;
  size_t part_;
  size_t part_count_;
  uint64_t cached_blocks_ = 0;  // the last small ones in a row that were looked at and cached
  uint64_t unseen_blocks_ = 0;  // since trust began
};

}  // namespace

std::unique_ptr<SlotSource> MakeInPlaceSource(const file::MapSource& map, uint64_t file_bytes,
                                              size_t part, size_t part_count) {
  return std::make_unique<InPlaceSource>(map, file_bytes, part, part_count);
}

}  // namespace lmdbio::load
