// Slots whose pages are read into the window.
//
// A block without gaps is read straight to its offset in the window, without a copy. A block with
// gaps is read into a staging buffer (staging_buffers.h). Leaf pages that several slots need are
// read once and then copied from the leaf cache.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/load/reader/read_backlog.h"
#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/reader/staging_buffers.h"
#include "lmdbio/load/slots/leaf_cache.h"

namespace lmdbio::load {
namespace {

class WindowSource final : public SlotSource {
 public:
  explicit WindowSource(WindowSourceParts parts)
      : parts_(std::move(parts)),
        staging_(parts_.block_bytes_max),
        backlog_(parts_.window->ring(), parts_.pages, *parts_.engine) {}

  // The cost of the storage matters only for plans of many small reads, so it is measured with the
  // first of these.
  void Plan(SlotInFlight& slot) override {
    BlockCut cut;
    cut.part = parts_.part;
    cut.part_count = parts_.part_count;
    cut.has_leaf = [this](const Extent& file) { return leaves_.Has(file); };
    if (slot.slot.is_scattered && parts_.measure_cost) {
      if (!cost_) cost_ = parts_.measure_cost();
      cut.cost = *cost_;
    }
    slot.slot.plan.CutBlocks(cut);
    slot.read_bytes = slot.slot.plan.read_bytes();
    if (parts_.pages != nullptr) parts_.pages->PrepareAhead(slot.slot.reserved);
  }

  Status Begin(SlotInFlight& slot) override {
    const ReadPlan& plan = slot.slot.plan;
    const std::span<const PlannedBlock> blocks = plan.blocks();
    LMDBIO_CHECK(blocks.size() < ReadTag::kReadsMax);
    slot.reads_left = 0;
    const MutableBytes pages = PagesOf(slot);
    for (const PlannedExtent& leaf : plan.had()) PreparePages(slot, leaf);
    leaves_.CopyTo(plan.had(), pages);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Extent& file = blocks[i].file;
      const uint64_t tag = ReadTag{slot.slot.number, i}.Pack();
      if (CopyWalked(slot, blocks[i])) continue;
      ++slot.reads_left;
      if (blocks[i].part_count > 0) {
        staging_.Add(file, tag);
      } else {
        backlog_.Add({file.offset, pages.subspan(blocks[i].at, file.length_bytes), tag});
      }
    }
    return Continue();
  }

  Status Complete(SlotInFlight& slot, uint64_t index, const Status& read) override {
    const PlannedBlock& block = slot.slot.plan.blocks()[index];
    const MutableBytes pages = PagesOf(slot);
    if (!read) LMDBIO_TRY_VOID(Repair(slot, block, read.error()));
    if (block.part_count > 0) {
      const uint64_t tag = ReadTag{slot.slot.number, index}.Pack();
      if (read) CopyParts(slot, block, staging_.At(tag));
      staging_.Release(tag);
    } else if (read) {
      KeepLeaf(block, pages);
    }
    --slot.reads_left;
    return {};
  }

  bool HasWaiting() const override { return !backlog_.is_empty(); }

  Status Continue() override {
    LMDBIO_TRY_VOID(backlog_.StartSome());
    return staging_.Start(*parts_.engine);
  }

  Bytes memory() const override { return parts_.window->ring(); }

 private:
  MutableBytes PagesOf(const SlotInFlight& slot) const {
    return parts_.window->ring().subspan(slot.slot.pages_at);
  }

  // Before pages are copied to the window: the thread that prepares memory may not touch a region
  // that is being written, and small pages would have to be moved afterwards.
  void PreparePages(const SlotInFlight& slot, const PlannedExtent& pages) const {
    if (parts_.pages == nullptr) return;
    parts_.pages->Prepare({slot.slot.pages_at + pages.at, pages.file.length_bytes});
  }

  void KeepLeaf(const PlannedBlock& block, MutableBytes pages) {
    if (!block.is_leaf) return;
    leaves_.Keep(block.file, pages.subspan(block.at, block.file.length_bytes));
  }

  // True if the locator has read the wanted bytes of the block already.
  bool CopyWalked(const SlotInFlight& slot, const PlannedBlock& block) {
    if (!parts_.planner->HasWalked()) return false;
    const MutableBytes pages = PagesOf(slot);
    SlotPlanner& planner = *parts_.planner;
    if (block.part_count == 0) {
      const MutableBytes to = pages.subspan(block.at, block.file.length_bytes);
      PreparePages(slot, {block.file, block.at});
      if (!planner.CopyWalked(block.file, to)) return false;
      KeepLeaf(block, pages);
      return true;
    }
    const auto parts = PartsOf(slot, block);
    return std::all_of(parts.begin(), parts.end(), [&](const PlannedExtent& part) {
      PreparePages(slot, part);
      return planner.CopyWalked(part.file, pages.subspan(part.at, part.file.length_bytes));
    });
  }

  // The parts of a block with gaps that the slot wants.
  static std::span<const PlannedExtent> PartsOf(const SlotInFlight& slot,
                                                const PlannedBlock& block) {
    return slot.slot.plan.parts().subspan(block.first_part, block.part_count);
  }

  void CopyParts(const SlotInFlight& slot, const PlannedBlock& block, Bytes staged) const {
    const MutableBytes pages = PagesOf(slot);
    for (const PlannedExtent& part : PartsOf(slot, block)) {
      PreparePages(slot, part);
      const Bytes from =
          staged.subspan(part.file.offset - block.file.offset, part.file.length_bytes);
      std::copy(from.begin(), from.end(), pages.begin() + static_cast<ptrdiff_t>(part.at));
    }
  }

  // Reads the wanted parts of a failed block one by one, straight to their offsets in the window.
  Status Repair(const SlotInFlight& slot, const PlannedBlock& block, const Error& why) const {
    LMDBIO_TRY_VOID(parts_.repair.Tolerate(why));
    const MutableBytes pages = PagesOf(slot);
    if (block.part_count == 0) {
      return parts_.repair.Reread(slot.slot.number, pages, {block.file, block.at});
    }
    for (const PlannedExtent& part : PartsOf(slot, block)) {
      LMDBIO_TRY_VOID(parts_.repair.Reread(slot.slot.number, pages, part));
    }
    return {};
  }

  WindowSourceParts parts_;
  StagingBuffers staging_;
  LeafCache leaves_;
  ReadBacklog backlog_;
  std::optional<ReadCost> cost_;  // once it was measured
};

}  // namespace

std::unique_ptr<SlotSource> MakeWindowSource(WindowSourceParts parts) {
  return std::make_unique<WindowSource>(std::move(parts));
}

}  // namespace lmdbio::load
