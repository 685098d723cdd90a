#include "lmdbio/load/loader/loader.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/digest.h"
#include "lmdbio/file/blocks/storage_cost.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/memory_room.h"
#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/locate/location_broadcast.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/shared_layout.h"
#include "lmdbio/load/slots/file_cache.h"
#include "lmdbio/load/slots/in_place_view.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/slot_reader.h"
#include "lmdbio/load/slots/snapshot_guard.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {
namespace {

// How long the destructor waits for the other ranks of the host.
constexpr auto kCloseLimit = std::chrono::seconds(10);

// Files from this size on are read long enough to find out first what reads cost.
constexpr uint64_t kWorthProbingBytes = 256 << 20;

rusage ProcessUsage() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage;
}

std::string_view LocatingName(LocateMethod locating) {
  switch (locating) {
    case LocateMethod::kNone:
      return "liblmdb's cursor";
    case LocateMethod::kCursor:
      return "a cursor over a map";
    case LocateMethod::kHandedCursor:
      return "a cursor over a map, handed from host to host";
    case LocateMethod::kOneWalker:
      return "a cursor over a map, on one host for all";
    case LocateMethod::kProvenance:
      return "provenance";
    case LocateMethod::kScan:
      return "a page walk";
    case LocateMethod::kBest:
      break;
  }
  return "";
}

// What the ranks of a host tell each other.
struct OnHost {
  uint64_t cores_digest = 0;  // of the cores that the process may use
  int64_t rank = 0;           // among the ranks of all shards
};

}  // namespace

class Loader::Impl {
 public:
  Impl(ranks::Group& group, std::string path, const LoaderOptions& options)
      : group_(group), path_(std::move(path)), options_(options) {}
  ~Impl();

  Status Open();
  Result<Step> Next(std::chrono::milliseconds limit);

  // The same loader, for a stream that goes on elsewhere.
  ranks::Group& group() const { return group_; }
  const std::string& path() const { return path_; }
  const LoaderOptions& options() const { return options_; }
  load::StreamState State() const;
  Status CheckSameOnAll(const std::string& place);
  Status CheckState(const std::string& state) const;
  void TakeOver(const Impl& before);
  // Every further call of Next says so.
  void Break(const Error& error) { error_.emplace(error.Copy()); }

  const Batch& batch() const { return batch_; }
  const load::Schedule& schedule() const { return *schedule_; }
  LoaderCounters counters() const;
  std::string Describe() const;
  const Placement& placement() const { return placement_; }
  std::vector<std::string> TakeNotes() { return notes_.Take(); }

 private:
  bool is_reader() const { return reader_index_ >= 0; }
  bool uses_window() const { return facts_.locating != LocateMethod::kNone; }
  bool has_layout() const {
    return facts_.locating == LocateMethod::kScan || facts_.locating == LocateMethod::kProvenance;
  }

  Status FindHost();
  Status FindCores(std::span<const OnHost> ranks);
  Status LookAtFile();
  Status DecideLocating(const file::Database& database);
  Result<file::Database> FindDatabase() const;
  Status ShareFacts();
  Result<bool> CanHandOn();
  Status OpenLinks();
  Status OpenStagger();
  Status OpenInPlace();
  Status OpenWindow();
  Status PrepareReader();
  std::function<load::ReadCost()> CostOfReads();
  Status OpenHostLayout();
  Status OpenKept();
  Result<std::unique_ptr<Locator>> MakeLocator(const file::Database& database);
  Result<std::unique_ptr<Locator>> MakeLayoutUser(const file::Database& database);
  Result<Step> NextBatch(std::chrono::milliseconds limit);
  Result<Step> NextFromWindow(const load::BatchSpan& span, std::chrono::milliseconds limit);
  Status ReadyInPlace(BatchShare& share, std::span<RecordEntry> entries);
  Result<Step> NextFromLmdb(const load::BatchSpan& span);
  void CountEnds();

  ranks::Group& group_;
  std::string path_;
  LoaderOptions options_;
  std::unique_ptr<ranks::Group> host_;
  HostRanks ranks_;
  int rank_ = 0;            // of this process, among the ranks of all shards
  size_t local_index_ = 0;  // of this rank on its host
  int reader_index_ = -1;   // -1: does not read
  Placement placement_;
  uint32_t reader_count_ = 1;
  std::string data_path_;
  OpenDecision facts_;
  load::DatasetIdentity dataset_;
  std::optional<load::Schedule> schedule_;
  Notes notes_;

  // Of readers, and of job rank 0:
  std::unique_ptr<file::FileSource> source_;
  std::optional<SnapshotGuard> guard_;
  std::optional<file::Layout> layout_;          // from provenance, until the locator takes it
  std::unique_ptr<load::CursorHandoff> baton_;  // until the locator takes it
  std::unique_ptr<load::LocationBroadcast> broadcast_;  // the same
  std::unique_ptr<load::LayoutAllGather> ring_;         // the same
  std::unique_ptr<ranks::SharedMemory> layout_memory_;  // where a host has several readers
  std::optional<load::SharedLayout> host_layout_;       // in it
  std::unique_ptr<Locator> locator_;

  // In place:
  std::optional<InPlaceView> in_place_;

  // Of the baseline:
  std::unique_ptr<LmdbStream> lmdb_;
  std::vector<RecordEntry> lmdb_entries_;

  std::unique_ptr<ranks::SharedMemory> memory_;
  std::unique_ptr<ranks::SharedMemory> kept_memory_;
  std::optional<Window> window_;
  SlotReaderParts parts_;
  std::unique_ptr<SlotReader> reader_;  // after what it borrows

  // Where this rank stands:
  uint64_t next_batch_ = 0;
  uint64_t slot_ = 0;                  // of the batch at hand
  std::optional<SlotHead> slot_head_;  // once it is there
  bool is_ended_ = false;
  std::optional<Error> error_;
  Batch batch_;
  LoaderCounters own_;
  rusage usage_at_open_ = {};
  bool is_reopened_ = false;
};

Loader::Impl::~Impl() {
  bool all_left = true;
  if (window_) {
    // The reading thread goes on until nobody needs it.
    window_->Leave();
    all_left = window_->AwaitAllLeft(kCloseLimit);
  }
  reader_.reset();
  locator_.reset();
  if (memory_ && !all_left) memory_->Abandon();
  if (layout_memory_ && !all_left) layout_memory_->Abandon();
  if (kept_memory_ && !all_left) kept_memory_->Abandon();
}

// Which cores are this rank's: ranks of a host that may use the same ones share them.
// ranks  [ranks of the host, in their order]
Status Loader::Impl::FindCores(std::span<const OnHost> ranks) {
  if (options_.placement.empty()) return {};
  LMDBIO_TRY(const HostCores cores, ProcessCores());
  std::vector<uint64_t> digests;
  for (const OnHost& rank : ranks) digests.push_back(rank.cores_digest);
  LMDBIO_TRY(placement_,
             PlaceThreads(options_.placement, cores, PlaceAmong(host_->rank(), digests)));
  parts_.cores = placement_.input;
  notes_.Add(placement_.notes);
  return {};
}

// Which ranks share this host, and who of them reads.
Status Loader::Impl::FindHost() {
  LMDBIO_TRY(host_, group_.SplitByHost());
  rank_ = options_.shard_id * group_.size() + group_.rank();
  const Result<HostCores> cores = ProcessCores();
  const OnHost mine = {CoresDigest(cores ? cores->allowed : CoreList()), rank_};
  LMDBIO_TRY(const std::vector<std::byte> gathered,
             host_->AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<OnHost> ranks(static_cast<size_t>(host_->size()));
  std::memcpy(ranks.data(), gathered.data(), gathered.size());
  std::vector<int> local_ranks;
  for (const OnHost& one : ranks) local_ranks.push_back(static_cast<int>(one.rank));
  ranks_ = {group_.size() * options_.num_shards, std::move(local_ranks), options_.share,
            options_.reuse_among};
  local_index_ = static_cast<size_t>(host_->rank());
  reader_count_ = std::min(options_.readers_per_host, static_cast<uint32_t>(host_->size()));
  if (local_index_ < reader_count_) reader_index_ = host_->rank();
  return ranks::Agree(group_, FindCores(ranks));
}

Result<file::Database> Loader::Impl::FindDatabase() const {
  const file::Environment& environment = guard_->environment();
  if (options_.database_name.empty()) return environment.Main();
  return environment.Named(options_.database_name);
}

// Provenance where it fits, if the strategy has the choice; job rank 0 alone decides.
Status Loader::Impl::DecideLocating(const file::Database& database) {
  facts_.locating = CompositionOf(options_.strategy).locating;
  const bool has_choice = facts_.locating == LocateMethod::kBest;
  if (!has_choice && facts_.locating != LocateMethod::kProvenance) return {};
  Result<file::Layout> layout = LayoutFromProvenance(database);
  if (layout) {
    facts_.locating = LocateMethod::kProvenance;
    layout_ = std::move(*layout);
    return {};
  }
  if (!has_choice) return Fail(std::move(layout).error());
  if (layout.error().code() != ErrorCode::kNotFound) {
    notes_.Add(layout.error().message() + ": scanning the tree instead");
  }
  facts_.locating = LocateMethod::kScan;
  return {};
}

Status Loader::Impl::LookAtFile() {
  const bool is_baseline = CompositionOf(options_.strategy).locating == LocateMethod::kNone;
  if (!is_reader() && !is_baseline) return {};
  LMDBIO_TRY(data_path_, file::FindDataFile(path_));
  if (is_baseline) {
    LMDBIO_TRY(lmdb_, LmdbStream::Open(data_path_, options_.database_name));
    if (group_.rank() != 0) return {};
  }
  LMDBIO_TRY(source_, file::FileSource::Open(data_path_));
  LMDBIO_TRY(guard_, SnapshotGuard::Open(*source_, options_.snapshot));
  if (group_.rank() != 0) return {};
  LMDBIO_TRY(const file::Database database, FindDatabase());
  LMDBIO_TRY(facts_, LookAtDatabase(database, data_path_, options_));
  // What other hosts have in their caches is not known.
  if (host_->size() != group_.size()) facts_.is_in_place = false;
  return DecideLocating(database);
}

Status Loader::Impl::ShareFacts() {
  LMDBIO_TRY_VOID(group_.Broadcast(0, std::as_writable_bytes(std::span(&facts_, 1))));
  Status same;
  if (guard_) same = CheckSameFile(facts_, guard_->environment().snapshot(), data_path_);
  LMDBIO_TRY_VOID(ranks::Agree(group_, std::move(same)));
  // The same on all ranks.
  LMDBIO_TRY(const load::StreamState stream, StreamFor(facts_, options_));
  dataset_ = stream.dataset;
  schedule_.emplace(stream.schedule);
  next_batch_ = stream.next_batch;
  if (lmdb_) lmdb_->SkipEpochs(schedule_->Group(next_batch_).first_walk, facts_.record_count);
  return {};
}

Status Loader::Impl::OpenInPlace() {
  if (data_path_.empty()) {
    LMDBIO_TRY(data_path_, file::FindDataFile(path_));
  }
  LMDBIO_TRY(in_place_, InPlaceView::Open(data_path_, *facts_.snapshot, options_.on_error));
  return {};
}

// A cursor goes through each batch once, so each host's records must lie together there.
Result<bool> Loader::Impl::CanHandOn() {
  const auto& ranks = ranks_.local_ranks;
  const bool mine = options_.share == Share::kBlock && options_.reuse == 1 &&
                    ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  LMDBIO_TRY(const auto all, group_.AllGather(std::as_bytes(std::span(&mine, 1))));
  return std::all_of(all.begin(), all.end(), [](std::byte one) { return one != std::byte{0}; });
}

// What readers of several hosts tell each other: the first readers of all hosts, the second ones,
// and so on.
Status Loader::Impl::OpenLinks() {
  if (facts_.locating == LocateMethod::kHandedCursor) {
    LMDBIO_TRY(const bool can_hand_on, CanHandOn());
    if (!can_hand_on) {
      facts_.locating = LocateMethod::kCursor;
      notes_.Add(
          "lmm-dm hands its cursor on only where each host's records of a batch lie together: with "
          "share block, without reuse, and ranks that follow each other on each host; here every "
          "host walks by itself");
    }
  }
  const LocateMethod locating = facts_.locating;
  if (locating != LocateMethod::kHandedCursor && locating != LocateMethod::kOneWalker &&
      locating != LocateMethod::kScan) {
    return {};
  }
  LMDBIO_TRY(const auto readers, group_.Split(reader_index_ + 1));
  const auto open = [&]() -> Status {
    if (!is_reader() || readers->size() == 1) return {};
    // The other readers of a host look at what its first one finds.
    if (locating == LocateMethod::kScan && reader_index_ > 0) return {};
    if (locating == LocateMethod::kHandedCursor) {
      LMDBIO_TRY(baton_, load::CursorHandoff::Create(*readers, group_.rank()));
    } else if (locating == LocateMethod::kScan) {
      // Each host can walk by itself, so this is worth no failure.
      Result<std::unique_ptr<load::LayoutAllGather>> ring =
          load::LayoutAllGather::Create(*readers, group_.rank());
      if (ring) ring_ = std::move(*ring);
      if (!ring) notes_.Add(ring.error().message() + ": every host walks by itself");
    } else {
      LMDBIO_TRY(broadcast_, load::LocationBroadcast::Create(*readers, group_.rank()));
    }
    return {};
  };
  return ranks::Agree(group_, open());
}

// Turns are a convenience: without them every reader reads when it likes.
Status Loader::Impl::OpenStagger() {
  if (!MayStagger(facts_, options_)) return {};
  LMDBIO_TRY(const auto alike, group_.Split(is_reader() ? 1 : 0));
  const int reader_count = is_reader() ? alike->size() : group_.size() - alike->size();
  load::StaggerOptions turns = StaggerFor(options_, static_cast<uint64_t>(reader_count));
  if (turns.token_counts.empty() || !is_reader()) return {};
  Result<std::unique_ptr<load::Stagger>> stagger =
      load::Stagger::Create(*alike, std::move(turns), group_.rank());
  if (stagger) parts_.stagger = std::move(*stagger);
  if (!stagger) notes_.Add(stagger.error().message() + ": readers take no turns");
  return {};
}

Status Loader::Impl::OpenWindow() {
  const WindowShape empty{host_->size(), static_cast<int>(reader_count_), 0};
  WindowShape shape = empty;
  shape.ring_bytes = (options_.memory_budget_bytes - Window::BytesNeeded(empty)) /
                     load::kStretchAlignBytes * load::kStretchAlignBytes;
  Result<std::unique_ptr<ranks::SharedMemory>> memory =
      host_->AllocateShared(Window::BytesNeeded(shape));
  Status allocated;
  if (memory) {
    memory_ = std::move(*memory);
  } else {
    allocated = Fail(std::move(memory).error().Within(
        fmt::format("memory_budget_bytes (--memory-budget) is {}", options_.memory_budget_bytes)));
  }
  LMDBIO_TRY_VOID(ranks::Agree(group_, std::move(allocated)));
  if (reader_index_ == 0 && !is_reopened_ && !memory_->note().empty()) {
    notes_.Add(std::string(memory_->note()));
  }
  // Fewer TLB misses where the kernel gives huge pages for shared memory (dissertation 3.3).
  ::madvise(memory_->bytes().data(), memory_->bytes().size(), MADV_HUGEPAGE);
  window_.emplace(memory_->bytes(), shape, host_->rank(), group_.rank());
  window_->Introduce();
  LMDBIO_TRY_VOID(host_->Barrier());
  const std::vector<int> unwatched = window_->WatchPeers();
  if (!unwatched.empty() && reader_index_ == 0) {
    notes_.Add(
        fmt::format("the end of rank {} would not be noticed: its process is in another pid "
                    "namespace, or pidfd_open and /proc are refused",
                    fmt::join(unwatched, ", ")));
  }
  return {};
}

// Several readers of a host need one layout.
Status Loader::Impl::OpenHostLayout() {
  if (!has_layout() || reader_count_ == 1) return {};
  Result<std::unique_ptr<ranks::SharedMemory>> memory =
      host_->AllocateShared(load::SharedLayout::BytesNeeded(facts_.record_count));
  if (memory) {
    layout_memory_ = std::move(*memory);
    host_layout_.emplace(layout_memory_->bytes());
  } else if (reader_index_ == 0) {
    notes_.Add(memory.error().message() + ": every reader keeps a layout of its own");
  }
  return {};
}

// Memory for the whole file, where there is plenty on every host. Without it slots are larger.
Status Loader::Impl::OpenKept() {
  constexpr uint64_t kAnyRoom = ~uint64_t{0};
  if (KeepingFor(facts_, options_, kAnyRoom) == FileCaching::kNone) return {};
  const uint64_t room = file::MemoryRoomBytes();
  LMDBIO_TRY(const auto rooms, group_.AllGather(std::as_bytes(std::span(&room, 1))));
  uint64_t least = room;
  for (size_t at = 0; at < rooms.size(); at += sizeof room) {
    uint64_t other = 0;
    std::memcpy(&other, &rooms[at], sizeof other);
    least = std::min(least, other);
  }
  facts_.keeping = KeepingFor(facts_, options_, least);
  if (facts_.keeping == FileCaching::kNone) return {};
  Result<std::unique_ptr<ranks::SharedMemory>> memory =
      host_->AllocateShared(FileCache::BytesNeeded(facts_.snapshot->file_size_bytes));
  if (memory) {
    kept_memory_ = std::move(*memory);
    ::madvise(kept_memory_->bytes().data(), kept_memory_->bytes().size(), MADV_HUGEPAGE);
    return {};
  }
  facts_.keeping = FileCaching::kNone;
  if (reader_index_ == 0) {
    notes_.Add(memory.error().message() + ": nothing of the file is kept in memory");
  }
  return {};
}

// Of readers beside the host's first.
Result<std::unique_ptr<Locator>> Loader::Impl::MakeLayoutUser(const file::Database& database) {
  const auto make_own = [this, database]() -> Result<std::unique_ptr<Locator>> {
    if (facts_.locating == LocateMethod::kScan)
      return MakeScanLocator(database, nullptr, nullptr, placement_.input);
    LMDBIO_TRY(file::Layout layout, LayoutFromProvenance(database));
    return MakeLayoutLocator(std::move(layout));
  };
  if (!host_layout_) return make_own();
  return MakeHostLayoutLocator(*host_layout_, make_own, facts_.record_count);
}

Result<std::unique_ptr<Locator>> Loader::Impl::MakeLocator(const file::Database& database) {
  if (has_layout() && reader_index_ > 0) return MakeLayoutUser(database);
  load::SharedLayout* shared = host_layout_ ? &*host_layout_ : nullptr;
  switch (facts_.locating) {
    case LocateMethod::kCursor:
    case LocateMethod::kHandedCursor:
      return OpenCursorLocator(data_path_, options_.database_name, std::move(baton_));
    case LocateMethod::kOneWalker: {
      std::unique_ptr<Locator> walker;
      if (!broadcast_ || broadcast_->is_walker()) {
        LMDBIO_TRY(walker, OpenCursorLocator(data_path_, options_.database_name, nullptr));
      }
      if (!broadcast_) return walker;
      return MakeBroadcastLocator(std::move(walker), std::move(broadcast_), facts_.record_count);
    }
    case LocateMethod::kProvenance: {
      // The rank that has looked has the layout; the others compute it when they read.
      if (!layout_) {
        LMDBIO_TRY(auto provenance, ReadProvenance(database));
        return MakeProvenanceLocator(std::move(provenance), ProvenancePathOf(database), shared);
      }
      std::unique_ptr<Locator> locator = MakeLayoutLocator(std::move(*layout_), shared);
      layout_.reset();
      return locator;
    }
    default:
      return MakeScanLocator(database, std::move(ring_), shared, placement_.input);
  }
}

// What the reader may ask, in its own thread: by then others read too, which is as it should be.
std::function<load::ReadCost()> Loader::Impl::CostOfReads() {
  if (CompositionOf(options_.strategy).coalescing == load::Coalescing::kNone) return {};
  const uint64_t file_bytes = facts_.snapshot->file_size_bytes;
  const file::EngineOptions engine{
      facts_.engine, facts_.cache, options_.queue_depth, {}, host_->size() == group_.size()};
  return [this, engine, file_bytes] {
    file::StorageCost cost = file::kAssumedCost;
    if (file_bytes >= kWorthProbingBytes) {
      std::vector<std::string> notes;
      const auto measured =
          file::MeasureStorageCost(data_path_, engine, file_bytes, options_.block_bytes, &notes);
      notes_.Add(std::move(notes));
      if (measured) cost = *measured;
      if (!measured) notes_.Add(measured.error().message() + ": the cost of reads is assumed");
    }
    return load::ReadCost{cost.request_s, cost.byte_s};
  };
}

// Everything of the reader that can fail, before any thread is started.
Status Loader::Impl::PrepareReader() {
  if (!is_reader()) return {};
  LMDBIO_TRY(const file::Database database, FindDatabase());
  LMDBIO_TRY(locator_, MakeLocator(database));
  if (facts_.is_in_place) {
    parts_.map = &in_place_->map();
  } else {
    // What follows a block may be another host's.
    const bool reads_ahead = host_->size() == group_.size();
    LMDBIO_TRY(
        parts_.engine,
        file::OpenBlockEngine(
            data_path_, {facts_.engine, facts_.cache, options_.queue_depth, {}, reads_ahead}));
  }
  const file::Snapshot& snapshot = guard_->environment().snapshot();
  if (kept_memory_) {
    parts_.kept = std::make_unique<FileCache>(
        kept_memory_->bytes(), facts_.snapshot->file_size_bytes, options_.block_bytes,
        static_cast<size_t>(reader_index_), static_cast<size_t>(reader_count_));
  }
  const SlotLimits limits = LimitsFor(facts_, options_, *schedule_, host_->size(),
                                      ranks_.rank_count, window_->ring().size());
  parts_.window = &*window_;
  parts_.notes = &notes_;
  parts_.guard = &*guard_;
  parts_.plan_options = PlanOptionsFor(facts_, options_, snapshot);
  parts_.measure_cost = CostOfReads();
  parts_.planner =
      std::make_unique<SlotPlanner>(*schedule_, next_batch_, ranks_, *locator_, limits);
  parts_.finisher =
      std::make_unique<SlotFinisher>(guard_->environment().pages(), ranks_, options_.on_error);
  parts_.reader_index = reader_index_;
  parts_.on_error = options_.on_error;
  return {};
}

Status Loader::Impl::Open() {
  LMDBIO_TRY_VOID(ranks::Agree(group_, CheckOptions(options_)));
  LMDBIO_TRY_VOID(CheckSameOptions(group_, options_));
  LMDBIO_TRY_VOID(FindHost());
  LMDBIO_TRY_VOID(ranks::Agree(group_, LookAtFile()));
  LMDBIO_TRY_VOID(ShareFacts());
  if (!is_reopened_) usage_at_open_ = ProcessUsage();
  if (!uses_window()) return {};
  if (facts_.is_in_place) {
    LMDBIO_TRY_VOID(ranks::Agree(group_, OpenInPlace()));
  }
  if (host_->size() != group_.size()) {
    LMDBIO_TRY_VOID(OpenLinks());
    LMDBIO_TRY_VOID(OpenStagger());
  }
  LMDBIO_TRY_VOID(OpenWindow());
  LMDBIO_TRY_VOID(OpenHostLayout());
  LMDBIO_TRY_VOID(OpenKept());
  LMDBIO_TRY_VOID(ranks::Agree(group_, PrepareReader()));
  if (!is_reopened_) usage_at_open_ = ProcessUsage();
  if (is_reader()) reader_ = std::make_unique<SlotReader>(std::move(parts_));
  return {};
}

Result<Loader::Step> Loader::Impl::NextFromWindow(const load::BatchSpan& span,
                                                  std::chrono::milliseconds limit) {
  if (slot_head_ && span.number == slot_head_->first_batch + slot_head_->batch_count) {
    slot_head_.reset();
    window_->LetGo(++slot_);
  }
  if (!slot_head_) {
    const auto start = std::chrono::steady_clock::now();
    Result<std::optional<SlotHead>> head = window_->AwaitSlot(slot_, limit);
    own_.wait_s += SecondsSince(start);
    if (!head) return Fail(std::move(head).error());
    if (!*head) return Step::kNothing;
    slot_head_ = *head;
  }
  LMDBIO_CHECK(span.number >= slot_head_->first_batch &&
               span.number < slot_head_->first_batch + slot_head_->batch_count);
  std::byte* ring = window_->ring().data();
  const auto* shares = reinterpret_cast<const BatchShare*>(ring + slot_head_->shares_at);
  auto* entries = reinterpret_cast<RecordEntry*>(ring + slot_head_->entries_at);
  const uint64_t index = span.number - slot_head_->first_batch;
  BatchShare share = shares[index * ranks_.local_ranks.size() + local_index_];
  const std::span<RecordEntry> mine(entries + share.first_entry, share.record_count);
  if (in_place_) {
    LMDBIO_TRY_VOID(ReadyInPlace(share, mine));
  }
  const std::byte* base = ring;
  if (!slot_head_->is_in_ring) {
    base = in_place_ ? in_place_->map().map().data() : kept_memory_->bytes().data();
  }
  batch_ = Batch(span, reinterpret_cast<std::uintptr_t>(base), mine.first(share.record_count),
                 share.skipped_count);
  return Step::kBatch;
}

// What this rank finds ends the stream for the others too, with their next batch: they need not
// wait for a slot before they get there.
Status Loader::Impl::ReadyInPlace(BatchShare& share, std::span<RecordEntry> entries) {
  if (std::optional<Error> failure = window_->UrgentFailure()) return Fail(std::move(*failure));
  Result<size_t> kept = in_place_->Ready(entries);
  if (!kept) {
    window_->Fail(kept.error(), Window::When::kNow);
    return Fail(std::move(kept).error());
  }
  share.skipped_count += share.record_count - static_cast<uint32_t>(*kept);
  share.record_count = static_cast<uint32_t>(*kept);
  return {};
}

Result<Loader::Step> Loader::Impl::NextFromLmdb(const load::BatchSpan& span) {
  const load::BatchGroup group = schedule_->Group(span.number);
  // A stream may begin within a group.
  if (span.number == group.first_batch || lmdb_entries_.empty()) {
    LMDBIO_TRY_VOID(lmdb_->Gather(group, options_.share, rank_, ranks_.rank_count, lmdb_entries_));
  }
  const size_t count = lmdb_entries_.size() / group.batch_count;
  batch_ =
      Batch(span, lmdb_->base(),
            std::span(lmdb_entries_).subspan((span.number - group.first_batch) * count, count), 0);
  return Step::kBatch;
}

Result<Loader::Step> Loader::Impl::NextBatch(std::chrono::milliseconds limit) {
  if (error_) return Fail(error_->code(), error_->message());
  if (options_.batch_count_max > 0 && next_batch_ >= options_.batch_count_max) is_ended_ = true;
  batch_ = Batch();
  if (is_ended_) {
    if (window_) window_->LetGo(slot_ + 1);
    return Step::kEnd;
  }
  const load::BatchSpan span = schedule_->Batch(next_batch_);
  Result<Step> step = uses_window() ? NextFromWindow(span, limit) : NextFromLmdb(span);
  if (!step) {
    error_.emplace(std::move(step).error());
    return Fail(error_->code(), error_->message());
  }
  if (*step == Step::kBatch) ++next_batch_;
  return step;
}

// What of an epoch a batch leaves out, or takes of the next.
void Loader::Impl::CountEnds() {
  if (!batch_.ends_epoch()) return;
  const uint64_t an_epoch = schedule_->positions_per_epoch();
  const uint64_t end = batch_.first_position() + batch_.global_record_count();
  const uint64_t epoch_end = (batch_.epoch() + 1) * an_epoch;
  if (options_.tail == Tail::kDrop) own_.dropped_count += epoch_end - end;
  ++own_.epoch_count;
  if (options_.tail == Tail::kWrap) {
    own_.wrapped_count += end - epoch_end;
    own_.epoch_count += (end - epoch_end) / an_epoch;  // a batch may be larger than an epoch
  }
}

load::StreamState Loader::Impl::State() const {
  return {dataset_, schedule_->options(), next_batch_};
}

// Collective: whether all ranks want to go on at the same place, in words.
Status Loader::Impl::CheckSameOnAll(const std::string& place) {
  const uint64_t mine = TextDigest(place);
  LMDBIO_TRY(const auto all, group_.AllGather(std::as_bytes(std::span(&mine, 1))));
  for (int rank = 1; rank < group_.size(); ++rank) {
    if (std::memcmp(all.data(), all.data() + static_cast<size_t>(rank) * sizeof mine,
                    sizeof mine) != 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} goes on elsewhere than rank 0: ranks must have had the same "
                              "batches",
                              rank));
    }
  }
  return {};
}

Status Loader::Impl::CheckState(const std::string& state) const {
  LMDBIO_TRY_VOID(ContinueFrom(state, facts_, options_));
  return {};
}

void Loader::Impl::TakeOver(const Impl& before) {
  facts_ = before.facts_;
  dataset_ = before.dataset_;
  schedule_ = before.schedule_;
  next_batch_ = before.next_batch_;  // until it is known where this one begins
  own_ = before.counters();
  notes_.TakeOver(before.notes_);
  usage_at_open_ = before.usage_at_open_;
  is_reopened_ = true;
}

Result<Loader::Step> Loader::Impl::Next(std::chrono::milliseconds limit) {
  const double cpu_before = ThreadCpuSeconds();
  Result<Step> step = NextBatch(limit);
  if (step && *step == Step::kBatch) {
    CountEnds();
    ++own_.batch_count;
    own_.record_count += batch_.record_count();
    own_.skipped_count += batch_.skipped_count();
    own_.payload_bytes += batch_.payload_bytes();
  }
  own_.next_cpu_s += ThreadCpuSeconds() - cpu_before;
  return step;
}

LoaderCounters Loader::Impl::counters() const {
  LoaderCounters counters = own_;
  if (reader_) reader_->AddTo(counters);
  if (lmdb_) {
    counters.locate_s += lmdb_->locate_s();
    counters.read_s += lmdb_->read_s();
  }
  const rusage now = ProcessUsage();
  const auto grown = [](long after, long before) { return static_cast<uint64_t>(after - before); };
  counters.major_faults = grown(now.ru_majflt, usage_at_open_.ru_majflt);
  counters.minor_faults = grown(now.ru_minflt, usage_at_open_.ru_minflt);
  counters.context_switches =
      grown(now.ru_nvcsw + now.ru_nivcsw, usage_at_open_.ru_nvcsw + usage_at_open_.ru_nivcsw);
  counters.memory_bytes_max = static_cast<uint64_t>(now.ru_maxrss) * 1024;
  return counters;
}

std::string Loader::Impl::Describe() const {
  if (!uses_window()) return std::string(LocatingName(facts_.locating));
  const uint64_t group_batches = schedule_->group_batches();
  std::string extras =
      group_batches > 1 ? fmt::format("; groups of {} batches", group_batches) : "";
  const std::string placed = placement_.Describe();
  if (!placed.empty()) extras += "; " + placed;
  if (in_place_) {
    return fmt::format("{}; in place, in a map{}", LocatingName(facts_.locating), extras);
  }
  const uint32_t token_count = reader_ ? reader_->token_count() : 0;
  const std::string turns =
      token_count > 0 ? fmt::format("; {} reader(s) at a time", token_count) : "";
  const std::string engine = reader_ ? reader_->engine_name() : file::EngineKindName(facts_.engine);
  const std::string_view kept = reader_ && reader_->keeps() ? "; what was read is kept" : "";
  return fmt::format("{}; {}; blocks of up to {} bytes{}{}{}", LocatingName(facts_.locating),
                     engine, options_.block_bytes, extras, turns, kept);
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::~Loader() = default;

Result<std::unique_ptr<Loader>> Loader::Open(ranks::Group& group, const std::string& path,
                                             const LoaderOptions& options) {
  auto impl = std::make_unique<Impl>(group, path, options);
  LMDBIO_TRY_VOID(impl->Open());
  return std::unique_ptr<Loader>(new Loader(std::move(impl)));
}

std::string Loader::Save() const { return load::EncodeStreamState(impl_->State()); }

Status Loader::Restore(const std::string& state) {
  LMDBIO_TRY_VOID(impl_->CheckSameOnAll(state));
  LMDBIO_TRY_VOID(impl_->CheckState(state));
  return Reopen(state);
}

Status Loader::SetEpoch(uint64_t epoch) {
  load::StreamState state = impl_->State();
  LMDBIO_TRY_VOID(impl_->CheckSameOnAll(fmt::format("epoch {} {}", epoch, state.next_batch)));
  LMDBIO_TRY_VOID(CheckEpoch(epoch, impl_->schedule().positions_per_epoch()));
  const uint64_t first = epoch * impl_->schedule().positions_per_epoch();
  if (impl_->schedule().Batch(state.next_batch).first_position == first) return {};
  state.schedule.origin = {state.next_batch, first};
  return Reopen(load::EncodeStreamState(state));
}

// Nothing of what was prefetched is of use; a loader that is opened anew shares no path with one
// that goes on.
Status Loader::Reopen(const std::string& state) {
  LoaderOptions options = impl_->options();
  options.state = state;
  options.epoch = 0;
  auto next = std::make_unique<Impl>(impl_->group(), impl_->path(), options);
  next->TakeOver(*impl_);
  impl_ = nullptr;  // memory of both would be too much
  impl_ = std::move(next);
  Status opened = impl_->Open();
  if (!opened) impl_->Break(opened.error());
  return opened;
}

Result<bool> Loader::Next() {
  LMDBIO_TRY(const Step step, impl_->Next(kNoLimit));
  return step == Step::kBatch;
}
Result<Loader::Step> Loader::NextWithin(std::chrono::milliseconds limit) {
  return impl_->Next(limit);
}
const Placement& Loader::placement() const { return impl_->placement(); }
const Batch& Loader::batch() const { return impl_->batch(); }
uint64_t Loader::record_count() const { return impl_->schedule().record_count(); }
uint64_t Loader::batches_per_epoch() const { return impl_->schedule().batches_per_epoch(); }
LoaderCounters Loader::counters() const { return impl_->counters(); }
std::string Loader::Describe() const { return impl_->Describe(); }
std::vector<std::string> Loader::TakeNotes() { return impl_->TakeNotes(); }

}  // namespace lmdbio::load
