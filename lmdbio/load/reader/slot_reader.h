// lmdbio/load/reader/slot_reader.h - the thread that keeps the window full.
//
//   plan the next slot -> wait until its memory is free -> prepare the memory and start its reads
//                      -> reads complete -> finish and announce the slot
//
// All of it runs in one thread. The thread sleeps in the engine while reads are in flight, and in
// the window while the ranks hold all memory. Several slots are in flight at once, so that the
// storage stays busy at the end of each of them. The thread makes no MPI call.
//
// Without a thread, ReadNext does this for one slot, in the thread of the rank that needs it.
//
// With several readers on a host, each plans every slot and reads its own part of it. The reader
// that completes its part last finishes the slot.
//
// Source: dissertation 5.2.1, 5.2.3; docs/loader.md "Readers".
#ifndef LMDBIO_LOAD_READER_SLOT_READER_H_
#define LMDBIO_LOAD_READER_SLOT_READER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lmdbio/base/placement.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/reader/read_engine.h"
#include "lmdbio/load/reader/reader_tally.h"
#include "lmdbio/load/reader/slot_queue.h"
#include "lmdbio/load/reader/slot_source.h"
#include "lmdbio/load/slots/counters.h"
#include "lmdbio/load/slots/file_cache.h"
#include "lmdbio/load/slots/loader_memory.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/slot_finisher.h"
#include "lmdbio/load/slots/slot_planner.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/load/turns/stagger.h"

namespace lmdbio::load {

// The use of records in place.
struct InPlaceUse {
  const file::MapSource* map = nullptr;  // null: records are not used in place; borrowed
  bool reads_missing = true;             // see InPlaceSourceParts
  bool reads_pieces = false;             // the same
  // No thread: the rank calls ReadNext. Only with a window of this rank alone, and without stagger.
  bool rank_reads = false;
};

struct SlotReaderParts {
  Window* window = nullptr;            // borrowed
  const OpenedFiles* files = nullptr;  // borrowed
  Notes* notes = nullptr;              // gets the engine's notes; borrowed
  std::unique_ptr<file::BlockEngine> engine;
  InPlaceUse in_place;
  std::unique_ptr<FileCache> kept;  // null if no slot is kept
  HugeMemory huge;
  std::unique_ptr<SlotPlanner> planner;
  std::unique_ptr<SlotFinisher> finisher;
  std::unique_ptr<Stagger> stagger;  // null if readers take no turns
  ReadPlanOptions plan_options;
  // Measures the cost of reads; called once, by the reading thread. May be empty.
  std::function<ReadCost()> measure_cost;
  int reader_index = 0;  // among the readers of the window
  OnError on_error = OnError::kRaise;
  CoreList cores;  // for the thread, and for the threads that the engine starts; empty: any
};

class SlotReader {
 public:
  // Starts the thread, unless the rank reads. An error of the thread, also that there is none, ends
  // the stream for the whole host (Window::Fail).
  explicit SlotReader(SlotReaderParts parts);

  // Ends the thread. It starts no further read, and waits for the reads in flight.
  ~SlotReader();
  SlotReader(const SlotReader&) = delete;
  SlotReader& operator=(const SlotReader&) = delete;

  // Reads and announces the next slot; does nothing at the end of the stream. False if slots that
  // the rank has not released occupy its memory: nothing was read then.
  // Requires: no thread
  // Errors: as the thread would report. No further call is allowed then
  Result<bool> ReadNext();

  // Adds the counters of the reader up to now. Any thread.
  void AddTo(LoaderCounters& counters) const;

  // True once a slot was kept in the file cache. Any thread.
  bool keeps() const { return tally_.kept_slots.load(std::memory_order_relaxed) > 0; }

  // The bytes of the window and of the file cache that are huge pages now. Any thread.
  uint64_t huge_bytes() const;

  // The present text of file::BlockEngine::Describe; "" without an engine. Any thread.
  std::string engine_name() const { return engine_ ? engine_->name() : std::string(); }

  // The number of readers of the job that may read at a time. 0: all. Any thread.
  uint32_t token_count() const { return parts_.stagger ? parts_.stagger->token_count() : 0; }

 private:
  void OpenSources();
  void Run();
  void Abandon(const Error& error);
  void CountProcessorTime();
  bool has_thread() const { return !parts_.in_place.rank_reads; }
  Status Work();
  Status Plan();
  bool MayBegin();
  Status AwaitTurn();
  Status AwaitSpace();
  Status Begin();
  void PassNotesOn();
  Status Collect(Result<std::span<file::BlockDone>> done);
  bool HasWaiting() const;
  Status StartWaiting();
  Status EndIfRead(SlotInFlight& slot);
  Status EndPart(SlotInFlight& slot);
  SlotFinisher::ValueBytes ValuesAre() const;
  Status FinishSlot(SlotInFlight& slot);
  uint64_t outstanding() const { return engine_ ? engine_->outstanding() : 0; }
  SlotSource& SourceOf(const SlotInFlight& slot) const {
    return slot.slot.is_kept ? *cache_source_ : *source_;
  }

  SlotReaderParts parts_;
  ReaderTally tally_;
  std::unique_ptr<ReadEngine> engine_;
  SlotQueue queue_;
  std::unique_ptr<SlotSource> source_;        // the window, or in place
  std::unique_ptr<SlotSource> cache_source_;  // of slots that are kept; may be null
  std::unique_ptr<SlotInFlight> planned_;     // planned and not begun
  bool is_ended_ = false;                     // the stream has no further slot
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_SLOT_READER_H_
