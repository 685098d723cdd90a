// Slots whose pages are used in the file cache of the host.
//
// A slot needs chunks of the file. Each chunk is read by one reader of the host, for the first slot
// that needs it. Later slots may therefore depend on reads of earlier slots; the reader finishes
// the slots of this source in order.
#include <utility>

#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/reader/read_backlog.h"
#include "lmdbio/load/reader/slot_source.h"

namespace lmdbio::load {
namespace {

class CacheSource final : public SlotSource {
 public:
  CacheSource(std::unique_ptr<FileCache> cache, ranks::HugePages* pages, ReadEngine& engine,
              const BlockRepair& repair, const SlotQueue& slots, ReaderTally& tally)
      : cache_(std::move(cache)),
        pages_(pages),
        backlog_(cache_->memory(), pages, engine),
        repair_(repair),
        slots_(slots),
        tally_(tally) {}

  void Plan(SlotInFlight& slot) override {
    slot.chunks.clear();
    // Blocks of the plan are file extents here (FinishInFile). The chunks that they touch are read
    // instead.
    cache_->TakeMissing(slot.slot.plan.blocks(), slot.chunks);
    slot.read_bytes = 0;
    for (const Extent& chunk : slot.chunks) slot.read_bytes += chunk.length_bytes;
    if (pages_ == nullptr) return;
    for (const Extent& chunk : slot.chunks) pages_->PrepareAhead(chunk);
  }

  Status Begin(SlotInFlight& slot) override {
    Add(tally_.kept_slots, uint64_t{1});
    slot.reads_left = slot.chunks.size();
    for (size_t i = 0; i < slot.chunks.size(); ++i) {
      const auto [offset, length_bytes] = slot.chunks[i];
      backlog_.Add({offset, cache_->memory().subspan(offset, length_bytes),
                    ReadTag{slot.slot.number, i}.Pack()});
    }
    return Continue();
  }

  bool HasWaiting() const override { return !backlog_.is_empty(); }
  Status Continue() override { return backlog_.StartSome(); }

  // All slots in flight from this one on may need the chunk, so each of them gets the bad ranges.
  // Later slots will request the chunk again.
  Status Complete(SlotInFlight& slot, uint64_t index, const Status& read) override {
    if (!read) {
      const Extent chunk = slot.chunks[index];
      LMDBIO_TRY_VOID(repair_.Tolerate(read.error()));
      cache_->Forget(chunk);
      for (const auto& other : slots_.slots()) {
        if (other->slot.number < slot.slot.number || !other->slot.is_kept) continue;
        LMDBIO_TRY_VOID(
            repair_.Reread(other->slot.number, cache_->memory(), {chunk, chunk.offset}));
      }
    }
    --slot.reads_left;
    return {};
  }

  Bytes memory() const override { return cache_->memory(); }

 private:
  std::unique_ptr<FileCache> cache_;
  ranks::HugePages* pages_;  // may be null
  ReadBacklog backlog_;
  BlockRepair repair_;
  const SlotQueue& slots_;
  ReaderTally& tally_;
};

}  // namespace

std::unique_ptr<SlotSource> MakeCacheSource(std::unique_ptr<FileCache> cache,
                                            ranks::HugePages* pages, ReadEngine& engine,
                                            const BlockRepair& repair, const SlotQueue& slots,
                                            ReaderTally& tally) {
  return std::make_unique<CacheSource>(std::move(cache), pages, engine, repair, slots, tally);
}

}  // namespace lmdbio::load
