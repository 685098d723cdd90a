// lmdbio/load/reader/slot_source.h - the ways in which a reader brings the pages of a slot into
// memory.
//
//   window    reads pages into the slot's own memory in the window
//   cache     reads chunks into the file cache of the host, each chunk once
//   in place  reads only what the page cache lacks: ranks use the pages in a map of the file
//
// The reader chooses the source of a slot when it plans the slot, and knows no further difference
// between them.
//
// Source: docs/loader.md "Readers"; docs/order.md "Reads".
#ifndef LMDBIO_LOAD_READER_SLOT_SOURCE_H_
#define LMDBIO_LOAD_READER_SLOT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/plan/read_plan.h"
#include "lmdbio/load/reader/block_repair.h"
#include "lmdbio/load/reader/read_engine.h"
#include "lmdbio/load/reader/slot_queue.h"
#include "lmdbio/load/slots/file_cache.h"
#include "lmdbio/load/slots/slot_finisher.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/ranks/shm/huge_pages.h"

namespace lmdbio::load {

// The tag of a read: the number of its slot, and its index among the reads of the slot.
struct ReadTag {
  static constexpr uint64_t kIndexBits = 24;
  static constexpr uint64_t kReadsMax = uint64_t{1} << kIndexBits;  // of one slot

  static ReadTag Unpack(uint64_t tag) { return {tag >> kIndexBits, tag & (kReadsMax - 1)}; }
  uint64_t Pack() const { return slot << kIndexBits | index; }

  uint64_t slot = 0;
  uint64_t index = 0;
};

// Threads: one at a time.
class SlotSource {
 public:
  virtual ~SlotSource() = default;

  // Selects this reader's part of the slot's reads, and sets slot.read_bytes. The slot's memory may
  // still be in use by ranks.
  virtual void Plan(SlotInFlight& slot) = 0;

  // Takes over the reads that Plan selected, starts the first of them, and sets slot.reads_left.
  // Requires: the ranks have released the slot's memory; HasWaiting() is false
  // Errors: as ReadEngine::Start; kResourceExhausted  no staging memory
  //         kStale  the file has shrunk
  virtual Status Begin(SlotInFlight& slot) = 0;

  // Takes the result of one read of the slot, and decreases slot.reads_left. A read that has failed
  // for good is repaired or ends the stream (block_repair.h).
  // index  of the read among those of the slot
  // Errors: kIo, kCorruption, kStale
  virtual Status Complete(SlotInFlight& slot, uint64_t index, const Status& read) = 0;

  // Whether reads of begun slots wait for the preparation of their memory.
  virtual bool HasWaiting() const { return false; }

  // Starts further reads: those that waited for memory which Complete has freed, and some of those
  // that wait for preparation.
  // Errors: as Begin
  // Cost: prepares the memory of one read at most
  virtual Status Continue() { return {}; }

  // The memory that holds the slot's pages once reads_left is 0: PlannedSlot::pages_at and the
  // entries count from its start.
  virtual Bytes memory() const = 0;
};

// All pointers are borrowed.
struct WindowSourceParts {
  Window* window = nullptr;
  ReadEngine* engine = nullptr;
  ranks::HugePages* pages = nullptr;  // of the window's memory; may be null
  SlotPlanner* planner = nullptr;     // may have read pages already (CopyWalked)
  BlockRepair repair;
  size_t part = 0;  // the part of each plan that this reader reads
  size_t part_count = 1;
  uint64_t block_bytes_max = 0;
  // Measures the storage; called once, when a plan first has many small reads. May be empty.
  std::function<ReadCost()> measure_cost;
};
std::unique_ptr<SlotSource> MakeWindowSource(WindowSourceParts parts);

// pages  of the cache's memory; may be null; borrowed
// slots  the reader's slots in flight: a chunk may belong to several of them
// tally  counts the slots of this source
std::unique_ptr<SlotSource> MakeCacheSource(std::unique_ptr<FileCache> cache,
                                            ranks::HugePages* pages, ReadEngine& engine,
                                            const BlockRepair& repair, const SlotQueue& slots,
                                            ReaderTally& tally);

// All pointers are borrowed.
struct InPlaceSourceParts {
  const file::MapSource* map = nullptr;  // of the file
  uint64_t file_bytes = 0;               // of the snapshot
  ReadEngine* engine = nullptr;          // buffered
  // False: the kernel does not tell which blocks are missing, so all are only announced to it.
  bool reads_missing = true;
  // Whether the first small block that is missing in each piece of block_bytes_max brings the whole
  // piece: for a shuffled stream that needs all of it soon.
  bool reads_pieces = false;
  BlockRepair repair;
  size_t part = 0;  // the part of each plan that this reader makes ready
  size_t part_count = 1;
  uint64_t block_bytes_max = 0;
};
std::unique_ptr<SlotSource> MakeInPlaceSource(const InPlaceSourceParts& parts);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_SLOT_SOURCE_H_
