// lmdbio/load/slots/slot_reader.h - the thread that keeps the window full.
//
//   plan the next slot -> wait until its place is free -> start its blocks
//                      -> blocks done -> finish and announce the slot
//
// All of it runs in one thread, which sleeps in the engine while reads are under way and in the
// window while the trainers hold all memory. Several slots are under way at once, so that the
// storage never waits for the end of one. The thread makes no MPI call.
//
// With several readers on a host each plans every slot and reads its part of the blocks; whoever is
// last finishes the slot.
//
// Source: dissertation 5.2.1, 5.2.3; docs/loader.md "Readers".
#ifndef LMDBIO_LOAD_SLOTS_SLOT_READER_H_
#define LMDBIO_LOAD_SLOTS_SLOT_READER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/slots/counters.h"
#include "lmdbio/load/slots/file_cache.h"
#include "lmdbio/load/slots/leaf_cache.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/slot_finisher.h"
#include "lmdbio/load/slots/slot_planner.h"
#include "lmdbio/load/slots/snapshot_guard.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/load/turns/stagger.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

struct SlotReaderParts {
  Window* window = nullptr;                   // borrowed
  const SnapshotGuard* guard = nullptr;       // borrowed
  Notes* notes = nullptr;                     // what the engine says goes here; borrowed
  std::unique_ptr<file::BlockEngine> engine;  // none if records are looked at in place
  const file::MapSource* map = nullptr;       // in place: the file; borrowed
  std::unique_ptr<FileCache> kept;            // where slots may be kept
  std::unique_ptr<SlotPlanner> planner;
  std::unique_ptr<SlotFinisher> finisher;
  std::unique_ptr<load::Stagger> stagger;  // where readers take turns
  load::ReadPlanOptions plan_options;
  // What storage takes for a request and a byte: asked once, when it may matter; may be empty.
  std::function<load::ReadCost()> measure_cost;
  int reader_index = 0;  // which of the window's readers this is
  OnError on_error = OnError::kRaise;
  CoreList cores;  // that the thread runs on, and those that the engine starts; none: any
};

class SlotReader {
 public:
  // Starts the thread. An error ends the stream for the whole host (Window::Fail).
  explicit SlotReader(SlotReaderParts parts);

  // Ends the thread: nothing new is started, what is under way is awaited.
  ~SlotReader();
  SlotReader(const SlotReader&) = delete;
  SlotReader& operator=(const SlotReader&) = delete;

  // Adds what the reader has done so far. Any thread.
  void AddTo(LoaderCounters& counters) const;

  // Whether slots were looked at in memory that keeps the file. Any thread.
  bool keeps() const { return tally_.kept_slots.load(std::memory_order_relaxed) > 0; }

  // The present text of file::BlockEngine::Describe; "" without an engine. Any thread.
  std::string engine_name() const;

  // How many readers of the job may read at a time; 0: all. Any thread.
  uint32_t token_count() const { return parts_.stagger ? parts_.stagger->token_count() : 0; }

 private:
  using Clock = std::chrono::steady_clock;

  struct InFlightSlot {
    explicit InFlightSlot(const load::ReadPlanOptions& options) : slot(options) {}
    PlannedSlot slot;
    uint64_t blocks_left = 0;
    std::vector<Extent> chunks;  // of the kept file, that it was the first to ask for
    uint64_t read_bytes = 0;     // by this reader
    bool is_done = false;
  };
  // A block with gaps that waits for staging memory.
  struct Waiting {
    uint64_t slot = 0;
    size_t block = 0;
  };

  // Written by the reading thread, read by any.
  struct Tally {
    std::atomic<double> locate_s{0}, read_s{0}, finish_s{0}, space_wait_s{0}, turn_s{0}, cpu_s{0};
    std::atomic<uint64_t> kept_slots{0};
    std::atomic<uint64_t> requests{0}, bytes{0}, direct_bytes{0}, useful_bytes{0}, retries{0};
  };

  void Run();
  Status Work();
  Status Plan();
  void PlanReads(InFlightSlot& slot);
  void CutBlocks(PlannedSlot& slot);
  bool MayBegin();
  Status AwaitTurn();
  Status AwaitSpace();
  Status Begin();
  Status BeginKept(InFlightSlot& slot);
  Status TakeKept(InFlightSlot& slot, const file::BlockDone& done);
  Status EndReady();
  Status BeginInPlace(InFlightSlot& slot);
  uint64_t outstanding() const { return parts_.engine ? parts_.engine->outstanding() : 0; }
  Status Collect(std::chrono::milliseconds limit);
  Status Take(file::BlockDone& done);
  void TakeStaged(const InFlightSlot& slot, const load::PlannedBlock& block,
                  const file::BlockDone& done);
  Status OpenStaging();
  Status StartStaged();
  MutableBytes StagingOf(uint64_t buffer) const;
  InFlightSlot& SlotOf(uint64_t number) {
    return *under_way_[number - under_way_.front()->slot.number];
  }
  Status Mend(const InFlightSlot& slot, const load::PlannedBlock& block, Error why);
  Status ReadPieces(const InFlightSlot& slot, const load::PlannedExtent& piece);
  Status EndPart(InFlightSlot& slot);
  Status FinishSlot(InFlightSlot& slot);
  void CountReads();
  void PassNotesOn();
  std::unique_ptr<InFlightSlot> NewSlot();

  SlotReaderParts parts_;
  std::unique_ptr<InFlightSlot> planned_;  // planned and not begun
  bool is_ended_ = false;                  // nothing left to plan
  std::deque<std::unique_ptr<InFlightSlot>> under_way_;
  std::vector<std::unique_ptr<InFlightSlot>> spare_;
  std::vector<file::BlockRead> reads_;
  std::optional<load::ReadCost> cost_;
  LeafCache leaves_;
  std::unique_ptr<ranks::SharedMemory> staging_;       // this process's alone
  std::vector<uint64_t> free_staging_;                 // indices of buffers
  std::unordered_map<uint64_t, uint64_t> staging_of_;  // tag of a read: its buffer
  std::deque<Waiting> waiting_;
  Clock::time_point busy_since_;
  uint64_t cached_blocks_ = 0;  // in place: seen in a row, all cached
  uint64_t unseen_blocks_ = 0;
  std::atomic<bool> stop_{false};
  Tally tally_;
  mutable std::mutex engine_name_mutex_;
  std::string engine_name_;
  std::thread thread_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_SLOT_READER_H_
