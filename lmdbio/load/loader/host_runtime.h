// lmdbio/load/loader/host_runtime.h - everything that a host keeps while a loader is open.
//
//   memory of the host   window, shared layout, file cache          on every rank
//   of a reader          links to other hosts, locator, reading thread
//   in place             each rank's own map of the file; slots of its own, if it reads alone
//
// Open acquires these step by step; each step ends with an agreement of all ranks, or cannot fail
// on one rank alone. The destructor ends what was acquired, also after a failed Open.
//
// Source: docs/loader.md "Opening", "Ranks".
#ifndef LMDBIO_LOAD_LOADER_HOST_RUNTIME_H_
#define LMDBIO_LOAD_LOADER_HOST_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/loader/opened_file.h"
#include "lmdbio/load/loader/reader_links.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/shared_layout.h"
#include "lmdbio/load/reader/slot_reader.h"
#include "lmdbio/load/slots/in_place_view.h"
#include "lmdbio/load/slots/loader_memory.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// The results of the earlier steps of Loader::Open. Everything here is borrowed, outlives the
// runtime, and does not change while the runtime lives; only `notes` and the layout of `file` do.
struct OpenContext {
  ranks::Group& group;
  const WantedFiles& wanted;
  const LoaderOptions& options;
  const HostMember& member;
  const OpenDecision& decision;
  const Schedule& schedule;
  OpenedFile& file;
  Notes& notes;               // thread-safe: the reading thread writes too
  uint64_t first_batch = 0;   // the first that any rank needs
  bool is_first_open = true;  // false: the loader goes on elsewhere, and notes were given before
};

// Threads: one at a time; the reading thread uses what Open prepared, and the notes.
class HostRuntime {
 public:
  // Requires: the strategy uses a window
  explicit HostRuntime(const OpenContext& context) : context_(context) {}

  // Leaves the window, waits for a few seconds at most until the other ranks of the host have left
  // it, ends the reading thread, and releases the memory. If a rank of the host does not leave,
  // memory that MPI would release collectively is abandoned to MPI_Finalize.
  // Collective: over the host, if its memory is a window of MPI's
  ~HostRuntime();
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  // Acquires everything except the reading thread.
  // Errors: as Loader::Open. The runtime can only be destroyed then
  // Collective: over the group
  Status Open();

  // Starts the reading thread of a reader. Requires: Open has succeeded on all ranks
  void StartReader();

  // The batches of this rank, which borrow the runtime's memory. Requires: Open has succeeded
  std::unique_ptr<BatchSource> MakeBatches();

  // The part of the window that the pages of slots use as a rule. Empty if they lie elsewhere.
  // Requires: Open has succeeded
  MutableBytes UsedWindow() const;

  bool is_in_place() const { return in_place_.has_value(); }
  // True if this rank finds and checks its own records, in its own thread.
  bool reads_alone() const;
  // The largest read without gaps, of a reader whose strategy chooses it; else 0.
  uint64_t whole_bytes_max() const { return whole_bytes_max_; }
  // The reader of this rank; null if it does not read, and before StartReader.
  const SlotReader* reader() const { return reader_.get(); }

 private:
  bool has_layout() const;
  bool has_reader() const { return context_.member.is_reader() || reads_alone(); }
  // True on the one rank of the host that finds the layout for all that read.
  bool finds_layout() const;
  HostRanks RanksOfReader() const;
  Window& slots() { return own_.window ? *own_.window : *window_; }
  Status OpenInPlace();
  Status OpenWindow();
  Status OpenOwnSlots();
  Status WatchPeers();
  Status OpenSharedLayout();
  Status OpenFileCache();
  Result<uint64_t> MemoryRoomOfHost() const;
  Result<uint64_t> LeastMemoryRoom() const;
  SlotLimits LimitsOfAllMemory(uint64_t ring_bytes) const;
  SlotLimits LimitsOfSlots();
  Result<std::unique_ptr<Locator>> MakeLocator(const file::Database& database);
  std::unique_ptr<Locator> MakeScan(const file::Database& database);
  std::unique_ptr<Locator> MakeListScan();
  Result<std::unique_ptr<Locator>> MakeProvenance(const file::Database& database);
  Result<std::unique_ptr<Locator>> MakeSharedLayoutUser(const file::Database& database);
  std::optional<JointWalk> JointWalkOf() const;
  std::function<ReadCost()> CostOfReads() const;
  bool NeedsWholeFileSoon() const;
  Status PrepareReader();
  Status PreparePages();
  void PrepareHugePages(const SlotLimits& limits);

  // The slots of a rank that reads alone.
  struct OwnSlots {
    LoaderMemory memory;
    std::optional<Window> window;
  };

  OpenContext context_;
  ReaderLinks links_;  // until locator and reader take them
  LoaderMemory memory_;
  uint64_t room_bytes_ = 0;  // the free memory of the host, before the first allocation
  std::optional<SharedLayout> shared_layout_;  // in memory_; with several readers, or ReadsAlone
  std::unique_ptr<Locator> locator_;
  std::optional<InPlaceView> in_place_;
  FileCaching caching_ = FileCaching::kNone;  // kNone unless memory_ has a file cache
  std::optional<Window> window_;              // in memory_
  OwnSlots own_;
  uint64_t whole_bytes_max_ = 0;
  SlotReaderParts parts_;               // until the reader takes them
  std::unique_ptr<SlotReader> reader_;  // after everything that it borrows
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_HOST_RUNTIME_H_
