#include "lmdbio/load/loader/host_runtime.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/source/memory_room.h"
#include "lmdbio/load/exchange/exchange_engine.h"
#include "lmdbio/load/slots/file_cache.h"
#include "lmdbio/load/view/view_locator.h"

namespace lmdbio::load {
namespace {

// How long the destructor waits for the other ranks of the host, and how often it looks whether one
// has failed meanwhile.
constexpr auto kCloseLimit = std::chrono::seconds(10);
constexpr auto kCloseLook = std::chrono::milliseconds(200);

// The distance behind the newest slot up to which window memory is prepared: two slots.
constexpr uint64_t kPreparedAheadBytes = 16 << 20;

// The memory of slots in flight. Scattered slots may grow into all of the window memory.
uint64_t MostReadAhead(const SlotLimits& limits) {
  const bool grows = limits.expects_scattered && limits.scattered_bytes_max > 0;
  return grows ? limits.ring_bytes : limits.wrap_bytes;
}

}  // namespace

// The order matters. The reading thread must run until all ranks have left, because a rank that is
// still reading batches may wait for a slot of this reader. The reader borrows the locator. Memory
// is released last, by the destructors of the members, and so in the same order on all ranks.
HostRuntime::~HostRuntime() {
  bool all_left = true;
  if (window_) {
    window_->Leave();
    const auto give_up = std::chrono::steady_clock::now() + kCloseLimit;
    do {
      all_left = window_->AwaitAllLeft(kCloseLook);
    } while (!all_left && std::chrono::steady_clock::now() < give_up &&
             context_.group.CheckRanks());
  }
  reader_.reset();
  locator_.reset();
  if (!all_left) memory_.Abandon();
}

bool HostRuntime::has_layout() const {
  return context_.decision.locating == LocateMethod::kScan ||
         context_.decision.locating == LocateMethod::kProvenance;
}

bool HostRuntime::reads_alone() const {
  return ReadsAlone(context_.decision, context_.options, context_.member);
}

bool HostRuntime::finds_layout() const {
  return reads_alone() ? context_.member.local_index == 0 : context_.member.reader_index == 0;
}

HostRanks HostRuntime::RanksOfReader() const {
  HostRanks ranks = context_.member.ranks;
  if (reads_alone()) ranks.local_ranks = {context_.member.rank};
  return ranks;
}

Status HostRuntime::OpenInPlace() {
  // Ranks that do not read have not looked for the file yet.
  OpenedFile& file = context_.file;
  LMDBIO_TRY_VOID(file.Find(context_.wanted, context_.options));
  if (reads_alone() && !file.is_open()) {
    LMDBIO_TRY_VOID(file.Open(context_.options));
    LMDBIO_TRY_VOID(CheckSameFile(context_.decision, file.files->snapshot(0), file.data_path));
    LMDBIO_TRY_VOID(file.ResolveView(context_.wanted.view.get(), context_.notes));
    if (file.view) {
      LMDBIO_TRY_VOID(CheckSameResolved(context_.decision, *file.view, file.data_path));
    }
  }
  LMDBIO_TRY(in_place_, InPlaceView::Open(file.data_path, *context_.decision.snapshot,
                                          context_.options.on_error));
  return {};
}

// The free memory of the host, as its first rank sees it: all readers of a host must have the same.
Result<uint64_t> HostRuntime::MemoryRoomOfHost() const {
  uint64_t room = file::MemoryRoomBytes();
  LMDBIO_TRY_VOID(context_.member.host->Broadcast(0, std::as_writable_bytes(std::span(&room, 1))));
  return room;
}

// The window gets all of the memory budget that its own tables leave. Memory is used only as far as
// the slots need it.
Status HostRuntime::OpenWindow() {
  LMDBIO_TRY(room_bytes_, MemoryRoomOfHost());
  const uint64_t budget_bytes = context_.options.memory_budget_bytes;
  WindowShape shape{context_.member.host->size(), context_.member.reader_count, 0};
  const uint64_t table_bytes = Window::BytesNeeded(shape) + LoaderMemory::ExtraBytes(budget_bytes);
  shape.ring_bytes = (budget_bytes - table_bytes) / kStretchAlignBytes * kStretchAlignBytes;
  // In place, slots need a few hundred KiB. To clear a huge page for them would take longer than to
  // fill them.
  const HugePageUse huge_pages =
      context_.decision.is_in_place ? HugePageUse::kOff : context_.options.huge_pages;
  Status allocated = memory_.AllocateWindow(*context_.member.host, Window::BytesNeeded(shape),
                                            context_.options.window_memory, huge_pages);
  if (!allocated) {
    // A smaller budget helps against too little memory alone.
    const bool is_too_much = allocated.error().code() == ErrorCode::kResourceExhausted;
    allocated = Fail(std::move(allocated).error().Within(
        is_too_much ? fmt::format("memory_budget_bytes (--memory-budget-bytes) is {}", budget_bytes)
                    : "the memory that the ranks of a host share"));
  }
  LMDBIO_TRY_VOID(ranks::Agree(context_.group, std::move(allocated)));
  if (context_.member.reader_index == 0 && context_.is_first_open &&
      !memory_.window_note().empty()) {
    context_.notes.Add(std::string(memory_.window_note()));
  }
  window_.emplace(memory_.window(), shape, context_.member.host->rank(), context_.group.rank());
  return WatchPeers();
}

// Private memory, which is used only as far as the slots need it.
Status HostRuntime::OpenOwnSlots() {
  const WindowShape shape{1, 1,
                          window_->ring().size() / context_.member.ranks.local_ranks.size() /
                              kStretchAlignBytes * kStretchAlignBytes};
  LMDBIO_TRY_VOID(own_.memory.AllocateWindow(*ranks::SoloGroup(), Window::BytesNeeded(shape),
                                             WindowMemoryUse::kAuto, HugePageUse::kOff));
  own_.window.emplace(own_.memory.window(), shape, 0, context_.group.rank());
  return {};
}

// The barrier lies between the two steps, so every rank finds the identities of all others.
Status HostRuntime::WatchPeers() {
  window_->Introduce();
  LMDBIO_TRY_VOID(context_.member.host->Barrier());
  const std::vector<int> unwatched = window_->WatchPeers();
  if (!unwatched.empty() && context_.member.reader_index == 0) {
    context_.notes.Add(
        fmt::format("the end of rank {} cannot be detected: its process is in another pid "
                    "namespace, or pidfd_open and /proc are refused",
                    fmt::join(unwatched, ", ")));
  }
  return {};
}

// With several readers on a host, the first one finds the layout and the others use it.
// The allocation succeeds on all ranks of a host or on none. So the note and the fallback need no
// agreement.
Status HostRuntime::OpenSharedLayout() {
  if (!has_layout() || (context_.member.reader_count == 1 && !reads_alone())) return {};
  const Status allocated = memory_.AllocateLayout(
      *context_.member.host, SharedLayout::BytesNeeded(context_.decision.located_count),
      context_.options);
  if (allocated) {
    shared_layout_.emplace(memory_.layout());
  } else if (finds_layout()) {
    context_.notes.Add(allocated.error().message() + ": every reader keeps a layout of its own");
  }
  return {};
}

// The free memory of the host that has the least of it.
Result<uint64_t> HostRuntime::LeastMemoryRoom() const {
  LMDBIO_TRY(const auto rooms, context_.group.AllGather(std::as_bytes(std::span(&room_bytes_, 1))));
  uint64_t least = room_bytes_;
  for (size_t at = 0; at < rooms.size(); at += sizeof(uint64_t)) {
    uint64_t other = 0;
    std::memcpy(&other, &rooms[at], sizeof other);
    least = std::min(least, other);
  }
  return least;
}

// Memory for the whole file, if every host has plenty of it. A host that cannot get the memory
// plans larger slots instead.
Status HostRuntime::OpenFileCache() {
  // With unlimited room first: if no room would be enough, all ranks skip the collective call.
  constexpr uint64_t kAnyRoom = ~uint64_t{0};
  const OpenDecision& decision = context_.decision;
  if (KeepingFor(decision, context_.options, kAnyRoom) == FileCaching::kNone) return {};
  LMDBIO_TRY(const uint64_t room, LeastMemoryRoom());
  const FileCaching caching = KeepingFor(decision, context_.options, room);
  if (caching == FileCaching::kNone) return {};
  const Status allocated = memory_.AllocateFileCache(
      *context_.member.host, FileCache::BytesNeeded(decision.snapshot->file_size_bytes),
      context_.options);
  if (allocated) {
    caching_ = caching;
  } else if (context_.member.reader_index == 0) {
    context_.notes.Add(allocated.error().message() + ": the file cache is off");
  }
  return {};
}

// For the readers of a host beside its first one. They look into the shared layout; without it, or
// if it has no room for all records, each of them finds a layout of its own.
Result<std::unique_ptr<Locator>> HostRuntime::MakeSharedLayoutUser(const file::Database& database) {
  // The reading thread calls this too, so it has copies of everything.
  const auto make_own =
      [database, &file = context_.file, &decision = context_.decision, &member = context_.member,
       &notes = context_.notes, cores = context_.member.placement.input,
       walks = context_.decision.locating == LocateMethod::kScan ||
               context_.decision.is_kept_layout]() -> Result<std::unique_ptr<Locator>> {
    if (file.is_list()) {
      return MakeScanLocator(file.ScanFiles(decision, member, notes), nullptr, nullptr,
                             {.cores = cores});
    }
    if (walks) return MakeScanLocator(database, nullptr, nullptr, {.cores = cores});
    LMDBIO_TRY(file::Layout layout, LayoutFromProvenance(database, ProvenancePathOf(database)));
    return MakeLayoutLocator(std::move(layout));
  };
  if (!shared_layout_) return make_own();
  return MakeHostLayoutLocator(*shared_layout_, make_own, context_.decision.located_count);
}

// The rank that decided for all has the layout already. The others compute it when they first need
// it, in their reading thread.
Result<std::unique_ptr<Locator>> HostRuntime::MakeProvenance(const file::Database& database) {
  SharedLayout* shared = shared_layout_ ? &*shared_layout_ : nullptr;
  std::optional<file::Layout>& layout = context_.file.layout;
  if (!layout) {
    const std::string path = context_.file.is_kept_layout ? context_.file.cache->PathOf(database)
                                                          : ProvenancePathOf(database);
    Result<file::Provenance> provenance = ReadProvenance(database, path);
    // A kept layout may have been dropped since the loader was opened.
    if (!provenance && context_.file.is_kept_layout) {
      context_.file.is_kept_layout = false;
      return MakeScan(database);
    }
    if (!provenance) return Fail(std::move(provenance).error());
    return MakeProvenanceLocator(std::move(*provenance), path, shared);
  }
  std::unique_ptr<Locator> locator = MakeLayoutLocator(std::move(*layout), shared);
  layout.reset();
  return locator;
}

std::unique_ptr<Locator> HostRuntime::MakeScan(const file::Database& database) {
  ScanOptions scan{.cores = context_.member.placement.input, .joint = JointWalkOf()};
  if (context_.file.cache) {
    scan.on_walked = [database, cache = *context_.file.cache,
                      &notes = context_.notes](const FinishedWalk& walked) {
      const Status kept = cache.Keep(database, walked);
      if (auto words = cache.NoteOf(kept)) notes.Add(std::move(*words));
    };
  }
  return MakeScanLocator(database, std::move(links_.gather),
                         shared_layout_ ? &*shared_layout_ : nullptr, std::move(scan));
}

// The databases of a list, one after the other.
std::unique_ptr<Locator> HostRuntime::MakeListScan() {
  return MakeScanLocator(
      context_.file.ScanFiles(context_.decision, context_.member, context_.notes),
      std::move(links_.gather), shared_layout_ ? &*shared_layout_ : nullptr,
      {.cores = context_.member.placement.input});
}

Result<std::unique_ptr<Locator>> HostRuntime::MakeLocator(const file::Database& database) {
  const std::string& data_path = context_.file.data_path;
  const std::string& name = context_.options.database_name;
  if (has_layout() && !finds_layout()) return MakeSharedLayoutUser(database);
  if (context_.file.is_list()) return MakeListScan();
  switch (context_.decision.locating) {
    case LocateMethod::kCursor:
    case LocateMethod::kHandedCursor:
      return OpenCursorLocator(data_path, name, CursorFetch::kValues, std::move(links_.handoff));
    case LocateMethod::kOneWalker: {
      std::unique_ptr<Locator> walker;
      if (!links_.broadcast || links_.broadcast->is_walker()) {
        LMDBIO_TRY(walker, OpenCursorLocator(data_path, name, CursorFetch::kLeaves, nullptr));
      }
      if (!links_.broadcast) return walker;
      return MakeBroadcastLocator(std::move(walker), std::move(links_.broadcast),
                                  context_.decision.located_count);
    }
    case LocateMethod::kProvenance:
      return MakeProvenance(database);
    default:
      return MakeScan(database);
  }
}

// One reader that passes over the whole file in its order, past the page cache, may read leaf pages
// and values together.
std::optional<JointWalk> HostRuntime::JointWalkOf() const {
  const LoaderOptions& options = context_.options;
  const OpenDecision& decision = context_.decision;
  const bool is_whole_pass =
      options.order == Order::kSequential && context_.first_batch == 0 && !decision.view_digest;
  const bool is_only_reader =
      context_.member.is_only_host && context_.member.reader_count == 1 && options.num_shards == 1;
  const bool reads_slots = !decision.is_in_place && caching_ != FileCaching::kAll;
  if (!is_whole_pass || !is_only_reader || !reads_slots) return std::nullopt;
  if (decision.cache == file::CachePolicy::kBuffered) return std::nullopt;
  if (options.joint_walk == JointWalkUse::kOff) return std::nullopt;
  return JointWalk{context_.file.data_path,
                   {decision.engine, decision.cache, options.queue_depth, {}, true},
                   StreamBytes(decision, options),
                   options.joint_walk == JointWalkUse::kOn ? 0 : kSlowReadSeconds};
}

// The storage is measured by the reading thread, when a slot first has many small reads. All
// readers of the job read by then, so the measurement sees the load that the reads will see.
std::function<ReadCost()> HostRuntime::CostOfReads() const {
  const LoaderOptions& options = context_.options;
  if (CompositionOf(options.strategy).coalescing == Coalescing::kNone) return {};
  const uint64_t file_bytes = context_.file.measured_bytes();
  const file::EngineOptions engine{context_.decision.engine,
                                   context_.decision.cache,
                                   options.queue_depth,
                                   {},
                                   context_.member.is_only_host};
  return [path = context_.file.measured_path(), block_bytes = options.block_bytes,
          &notes = context_.notes, engine,
          file_bytes] { return MeasureReads(path, engine, file_bytes, block_bytes, notes); };
}

// A shuffled stream of the whole file: each part of the file soon has some of its records.
bool HostRuntime::NeedsWholeFileSoon() const {
  const LoaderOptions& options = context_.options;
  // A view may leave out most of the file.
  const uint64_t file_bytes = context_.decision.snapshot->file_size_bytes;
  if (context_.decision.view_digest && context_.decision.page_bytes_total < file_bytes / 2) {
    return false;
  }
  return options.order == Order::kShuffle && context_.member.is_only_host &&
         options.num_shards == 1 && StreamBytes(context_.decision, options) >= file_bytes;
}

// The memory that pages are read into, and the engine that reads them.
Status HostRuntime::PreparePages() {
  const LoaderOptions& options = context_.options;
  const OpenDecision& decision = context_.decision;
  if (decision.is_in_place) {
    parts_.in_place = {&in_place_->map(), decision.cache == file::CachePolicy::kMixed,
                       NeedsWholeFileSoon(), reads_alone()};
  }
  // With several hosts, the bytes behind a block may belong to another host's share. In place, only
  // missing blocks are read, into the page cache.
  const bool reads_ahead = context_.member.is_only_host && !decision.is_in_place;
  const file::CachePolicy cache =
      decision.is_in_place ? file::CachePolicy::kBuffered : decision.cache;
  LMDBIO_TRY(parts_.engine, context_.file.files->OpenEngine(
                                {decision.engine, cache, options.queue_depth, {}, reads_ahead}));
  if (links_.exchange) {
    Result<std::unique_ptr<ExchangeEngine>> exchange = ExchangeEngine::Open(
        parts_.engine, std::move(*links_.exchange),
        {.chunk_bytes = options.block_bytes, .file_bytes = decision.snapshot->file_size_bytes},
        context_.member.placement.input);
    if (exchange) parts_.engine = std::move(*exchange);
    if (!exchange) context_.notes.Add(exchange.error().message() + ": this host does not exchange");
  }
  if (caching_ != FileCaching::kNone) {
    parts_.kept = std::make_unique<FileCache>(
        memory_.file_cache(), decision.snapshot->file_size_bytes, options.block_bytes,
        static_cast<size_t>(context_.member.reader_index),
        static_cast<size_t>(context_.member.reader_count));
  }
  return {};
}

// Huge pages for the memory that direct reads fill. Buffered reads are copies, which small pages do
// not slow down.
void HostRuntime::PrepareHugePages(const SlotLimits& limits) {
  if (context_.options.huge_pages == HugePageUse::kOff || context_.decision.is_in_place) return;
  if (context_.decision.cache == file::CachePolicy::kBuffered) return;
  const CoreList& cores = context_.member.placement.input;
  memory_.UseHugeWindow(
      window_->ring().size(),
      {.ahead_bytes = kPreparedAheadBytes, .ahead_end = limits.wrap_bytes, .cores = cores});
  if (caching_ == FileCaching::kNone) return;
  const uint64_t file_bytes = context_.decision.snapshot->file_size_bytes;
  memory_.UseHugeFileCache({.ahead_bytes = NeedsWholeFileSoon() ? file_bytes : kPreparedAheadBytes,
                            .ahead_end = file_bytes,
                            .cores = cores});
}

// As if the host had plenty of free memory.
SlotLimits HostRuntime::LimitsOfAllMemory(uint64_t ring_bytes) const {
  const int rank_count = reads_alone() ? 1 : context_.member.host->size();
  SlotLimits limits = LimitsFor(context_.decision, context_.options, context_.schedule, rank_count,
                                context_.member.ranks.rank_count, ring_bytes);
  limits.keeping = caching_;
  return limits;
}

// Ranks that do not read know no other bound.
MutableBytes HostRuntime::UsedWindow() const {
  if (in_place_ || caching_ == FileCaching::kAll) return {};
  const MutableBytes ring = window_->ring();
  return ring.first(std::min<uint64_t>(ring.size(), MostReadAhead(LimitsOfAllMemory(ring.size()))));
}

SlotLimits HostRuntime::LimitsOfSlots() {
  SlotLimits limits = LimitsOfAllMemory(slots().ring().size());
  if (context_.decision.is_in_place) return limits;
  const uint64_t wanted_bytes = MostReadAhead(limits);
  LimitToRoom(room_bytes_, limits);
  if (MostReadAhead(limits) < wanted_bytes && context_.member.reader_index == 0 &&
      context_.is_first_open) {
    context_.notes.Add(
        fmt::format("this host has {} bytes of free memory, so at most {} bytes are read ahead in "
                    "place of {}",
                    room_bytes_, limits.wrap_bytes, wanted_bytes));
  }
  return limits;
}

// Does everything of the reader that can fail, so that the ranks can agree before a thread starts.
Status HostRuntime::PrepareReader() {
  if (!has_reader()) return {};
  if (reads_alone()) LMDBIO_TRY_VOID(OpenOwnSlots());
  const OpenedFiles& files = *context_.file.files;
  LMDBIO_TRY(locator_, MakeLocator(files.database(0)));
  if (context_.file.view) locator_ = MakeViewLocator(context_.file.view, std::move(locator_));
  LMDBIO_TRY_VOID(PreparePages());
  const SlotLimits limits = LimitsOfSlots();
  PrepareHugePages(limits);
  parts_.huge = memory_.huge();
  parts_.window = &slots();
  parts_.notes = &context_.notes;
  parts_.files = &files;
  parts_.plan_options = PlanOptionsFor(context_.decision, context_.options, files.snapshot(0),
                                       limits, slots().shape().reader_count);
  whole_bytes_max_ = parts_.plan_options.whole_bytes_max;
  parts_.measure_cost = CostOfReads();
  parts_.planner = std::make_unique<SlotPlanner>(context_.schedule, context_.first_batch,
                                                 RanksOfReader(), *locator_, limits);
  parts_.finisher = std::make_unique<SlotFinisher>(
      files.pages(), RanksOfReader(), context_.options.on_error, context_.decision.field_count);
  parts_.reader_index = reads_alone() ? 0 : context_.member.reader_index;
  parts_.on_error = context_.options.on_error;
  parts_.cores = context_.member.placement.input;
  return {};
}

// Every step is collective. It fails on all ranks, or falls back on all ranks of a host. So a
// failure on one rank leaves no other rank in a collective call.
Status HostRuntime::Open() {
  if (context_.decision.is_in_place) {
    LMDBIO_TRY_VOID(ranks::Agree(context_.group, OpenInPlace()));
  }
  LMDBIO_TRY(links_, OpenReaderLinks(context_.group, context_.options, context_.member,
                                     context_.decision, context_.notes));
  parts_.stagger = std::move(links_.stagger);
  LMDBIO_TRY_VOID(OpenWindow());
  LMDBIO_TRY_VOID(OpenSharedLayout());
  LMDBIO_TRY_VOID(OpenFileCache());
  return ranks::Agree(context_.group, PrepareReader());
}

void HostRuntime::StartReader() {
  if (has_reader()) reader_ = std::make_unique<SlotReader>(std::move(parts_));
}

std::unique_ptr<BatchSource> HostRuntime::MakeBatches() {
  WindowBatchesParts parts;
  parts.window = &slots();
  parts.host = &*window_;
  parts.field_count = context_.decision.field_count;
  if (reads_alone()) {
    parts.own_reader = reader_.get();
  } else {
    parts.local_count = context_.member.ranks.local_ranks.size();
    parts.local_index = context_.member.local_index;
  }
  // Entries of slots outside the window count from one of these two; a loader has at most one of
  // them.
  if (in_place_) {
    parts.in_place = &*in_place_;
    parts.file_bytes = in_place_->map().map().data();
  } else if (caching_ != FileCaching::kNone) {
    parts.file_bytes = memory_.file_cache().data();
  }
  return MakeWindowBatches(parts);
}

}  // namespace lmdbio::load
