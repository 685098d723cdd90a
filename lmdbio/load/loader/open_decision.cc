#include "lmdbio/load/loader/open_decision.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/blocks/storage_cost.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/map/map_guard.h"
#include "lmdbio/file/source/memory_room.h"
#include "lmdbio/load/exchange/exchange_engine.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/plan/chunk_size.h"
#include "lmdbio/load/plan/option_text.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kMemoryBudgetMin = 1 << 20;

// The size of a slot. Large slots make the partial blocks at their edges cheap. Small slots let
// several of them fit, and make the first one early.
constexpr uint64_t kSlotTargetBytes = 8 << 20;
// Hosts share the storage. With more hosts, each reads smaller slots, or the reads that one host
// waits for would queue behind later reads of the others.
constexpr uint64_t kSlotTargetBytesOfAllHosts = 32 << 20;
constexpr uint64_t kSlotTargetBytesMin = 2 << 20;
// The slots of this size that are in flight or in use: on the only host, and on each of several
// hosts, which fill the queue of the storage together.
constexpr uint64_t kSlotsInUse = 8;
constexpr uint64_t kSlotsInUseOfSeveralHosts = 4;

// The default size of a batch group: one slot of each host, together.
constexpr uint64_t kGroupBytesOfAllHosts = kSlotTargetBytesOfAllHosts;
constexpr uint64_t kGroupBatchesMax = 1024;

// The default block of Shuffle::kBlock. Storage delivers extents of this size at about the rate of
// a sequential read.
constexpr uint64_t kShuffleBlockBytes = 1 << 20;

// The largest position. No stream gets this far, and sums of positions below it do not overflow.
constexpr uint64_t kPositionMax = uint64_t{1} << 60;

// The file cache may take 1 / kKeptRoomShare of the free memory, because several jobs may open at
// once.
constexpr uint64_t kKeptRoomShare = 8;

// `auto` tries tokens if the hosts read at least so much together, 80 times as much as the trial.
constexpr uint64_t kTrialWorthItFromBytes = uint64_t{36} << 30;
// The token counts that `auto` tries. A short trial pays sooner.
constexpr size_t kTokenCountsOfAuto = 2;

// A file of at least this size is read long enough that a measurement of the storage pays.
constexpr uint64_t kWorthProbingBytes = 256 << 20;

// From this cached share on, most reads are copies, which several threads do faster than one. If
// the kernel does not tell which parts are cached, all reads go through the page cache.
constexpr double kWarmShare = 0.9;

// `auto` exchanges if a host needs less of a batch than this part of a block.
constexpr double kSmallestShare = 1.0 / 8;
// A file is used in place if at least this share of it is cached, and missing blocks are read into
// the page cache. With more of them, copies and direct reads are faster.
constexpr double kInPlaceShare = 0.85;
// The same for shuffled records, which would otherwise be copied into a file cache. The cached ones
// would take memory twice, and fresh memory can be slower than storage (ranks/shm/huge_pages.h).
constexpr double kInPlaceShareOfShuffled = 0.4;
// The same for any file that the page cache might not hold beside other files, because what is
// missing would push out what is there; and for slow storage, which many direct reads use better.
constexpr double kInPlaceShareAtMost = 0.95;
// The free memory, cached files counted, is so many times the size of a file that is not large.
constexpr uint64_t kRoomOfFile = 2;
// The same, if the kernel does not tell which blocks are missing: all but a few pages.
constexpr double kInPlaceShareUncounted = 0.995;

tl::unexpected<Error> BadOption(std::string why) {
  return Fail(ErrorCode::kInvalidArgument, std::move(why));
}

// The bytes of the pages of an average batch.
double BatchBytes(const OpenDecision& facts, const LoaderOptions& options) {
  return static_cast<double>(facts.page_bytes_total) / static_cast<double>(facts.record_count) *
         static_cast<double>(options.global_batch_size);
}

// Strategies of the papers name their engine. kAuto probes the page cache and chooses.
Status ChooseEngine(const std::string& data_path, const LoaderOptions& options,
                    const HostMember& member, OpenDecision& facts, Notes& notes) {
  using EngineChoice = StrategyTraits::EngineChoice;
  switch (CompositionOf(options.strategy).engine) {
    case EngineChoice::kMmap:
      facts.engine = file::EngineKind::kMmap;
      facts.cache = file::CachePolicy::kBuffered;
      return {};
    case EngineChoice::kPread:
      facts.engine = options.engine.value_or(file::EngineKind::kPread);
      facts.cache = options.cache.value_or(file::CachePolicy::kBuffered);
      return {};
    case EngineChoice::kUringDirect:
      facts.engine = options.engine.value_or(file::EngineKind::kUring);
      facts.cache = options.cache.value_or(file::CachePolicy::kDirect);
      return {};
    case EngineChoice::kProbe:
      break;
  }
  // Explicit options overrule the probe. They also forbid `in place`, because a user who names an
  // engine wants its reads.
  LMDBIO_TRY(const file::CacheProbe probe, file::ProbeCache(data_path));
  const bool is_warm = probe.share >= kWarmShare;
  const uint64_t file_bytes = facts.snapshot->file_size_bytes;
  const InPlaceMeasures measures = {
      .room_bytes = [] { return file::MemoryRoomBytes(); },
      .read_s =
          [&] {
            return file::MeasureReadSeconds(
                data_path, {file::EngineKind::kPread, file::CachePolicy::kDirect, 1, {}, false},
                file_bytes);
          },
  };
  // Rank 0 does not know the page caches of other hosts.
  const bool gains_by_map = member.is_only_host && options.allow_map && !options.engine &&
                            !options.cache && options.snapshot != SnapshotMode::kOptimistic &&
                            IsCachedEnough(probe, options.order, file_bytes, measures);
  facts.is_in_place = gains_by_map && file::MapGuard::IsInForce();
  if (gains_by_map && !facts.is_in_place) {
    notes.Add(
        "the file is not mapped, because the program has set its own handler of SIGBUS while "
        "lmdbio had maps");
  }
  facts.engine =
      options.engine.value_or(is_warm ? file::EngineKind::kPread : file::EngineKind::kUring);
  // A mixed engine needs the kernel's count, as the probe does.
  using file::CachePolicy;
  const CachePolicy uncounted = is_warm ? CachePolicy::kBuffered : CachePolicy::kDirect;
  facts.cache = options.cache.value_or(probe.is_counted ? CachePolicy::kMixed : uncounted);
  return {};
}

// Rejects combinations of order options that contradict each other.
Status CheckOrder(const LoaderOptions& options) {
  if (options.group_batches > kGroupBatchesMax) {
    return BadOption(fmt::format("group_batches {} is out of range; expected at most {}",
                                 options.group_batches, kGroupBatchesMax));
  }
  if (options.reuse < 1 || options.reuse > Schedule::kReuseMax) {
    return BadOption(fmt::format("reuse {} is out of range; expected 1 to {}", options.reuse,
                                 Schedule::kReuseMax));
  }
  const bool deals = DealsOut(options.order, options.shuffle, options.reuse);
  if (deals && options.share == Share::kRoundRobin) {
    return BadOption(
        "share round-robin excludes order chunked, shuffle block and reuse; use share block or "
        "fill");
  }
  const StrategyTraits& composition = CompositionOf(options.strategy);
  const bool has_layout = composition.locating == LocateMethod::kScan ||
                          composition.locating == LocateMethod::kProvenance ||
                          composition.locating == LocateMethod::kBest;
  if (options.order == Order::kShuffle && !has_layout) {
    return BadOption(
        fmt::format("strategy {} cannot shuffle, because it finds records one after the other; use "
                    "auto, scan or a strategy with provenance",
                    composition.name));
  }
  if (options.reuse > 1 && composition.locating == LocateMethod::kNone) {
    return BadOption(
        fmt::format("strategy {} does not support reuse; use another strategy", composition.name));
  }
  if (!options.state.empty() && options.epoch > 0) {
    return BadOption(fmt::format(
        "epoch {} and a saved state exclude each other; give only one of them", options.epoch));
  }
  return {};
}

}  // namespace

bool IsCachedEnough(const file::CacheProbe& probe, Order order, uint64_t file_bytes,
                    const InPlaceMeasures& measures) {
  if (!probe.is_counted) return probe.share >= kInPlaceShareUncounted;
  if (probe.share >= kInPlaceShareAtMost) return true;
  if (probe.share < (order == Order::kShuffle ? kInPlaceShareOfShuffled : kInPlaceShare)) {
    return false;
  }
  if (measures.room_bytes() / kRoomOfFile < file_bytes) return false;
  const Result<double> read_s = measures.read_s();
  return read_s && *read_s < kSlowReadSeconds;
}

Status CheckOptions(const LoaderOptions& options) {
  if (options.global_batch_size == 0)
    return BadOption("global_batch_size 0 is out of range; expected 1 or more");
  if (options.readers_per_host == 0)
    return BadOption("readers_per_host 0 is out of range; expected 1 or more");
  LMDBIO_TRY_VOID(CheckReads(options.queue_depth, options.block_bytes));
  LMDBIO_TRY_VOID(CheckOrder(options));
  if (options.num_shards < 1 || options.shard_id < 0 || options.shard_id >= options.num_shards) {
    return BadOption(
        fmt::format("shard_id {} is out of range for num_shards {}; shards are numbered from 0",
                    options.shard_id, options.num_shards));
  }
  if (options.memory_budget_bytes < kMemoryBudgetMin) {
    return BadOption(fmt::format("memory_budget_bytes {} is out of range; expected {} or more",
                                 options.memory_budget_bytes, kMemoryBudgetMin));
  }
  if (options.keep_bytes < -1) {
    return BadOption(fmt::format(
        "keep_bytes {} is out of range; expected -1 (never), 0 (automatic) or a number of bytes",
        options.keep_bytes));
  }
  return {};
}

Status CheckSameOptions(ranks::Group& group, const LoaderOptions& options) {
  // One AllGather moves a digest and a short text of each value. Rank 0 is the reference, so all
  // ranks find the same difference.
  std::vector<OptionValue> values = CommonOptionValues(options);
  const size_t count = values.size();
  LMDBIO_TRY(const std::vector<std::byte> bytes, group.AllGather(std::as_bytes(std::span(values))));
  std::vector<OptionValue> all(count * static_cast<size_t>(group.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  const std::span<const OptionValue> first = std::span(all).first(count);
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto other = std::span(all).subspan(count * static_cast<size_t>(rank), count);
    const std::string difference = OptionDifference(first, other, rank);
    if (!difference.empty()) {
      return BadOption(difference + "; give all ranks of the job the same value");
    }
  }
  return {};
}

uint64_t PageBytesOf(const file::Database& database) {
  return (database.record().leaf_pages + database.record().overflow_pages) *
         database.pages().snapshot().page_format.page_size_bytes();
}

namespace {

// The stream as the options describe it. Fields that the options leave open are 0.
StreamState WantedStream(const OpenDecision& facts, const LoaderOptions& options,
                         const std::vector<FileIdentity>& files) {
  StreamState state;
  state.dataset = {options.database_name, facts.snapshot->meta.transaction_id,
                   facts.root.value,      facts.snapshot->page_format.page_size_bytes(),
                   facts.view_digest,     files};
  ScheduleOptions& schedule = state.schedule;
  schedule.walk = {facts.record_count, options.order, options.shuffle, options.seed,
                   options.block_records};
  schedule.batch_size = options.global_batch_size;
  schedule.tail = options.tail;
  schedule.group_batches = options.group_batches;
  schedule.reuse = options.reuse;
  return state;
}

}  // namespace

Status CheckEpoch(uint64_t epoch, uint64_t positions_per_epoch) {
  if (epoch <= kPositionMax / positions_per_epoch) return {};
  return BadOption(fmt::format("epoch {} is out of range; expected at most {}", epoch,
                               kPositionMax / positions_per_epoch));
}

Result<StreamState> ContinueFrom(const std::string& saved, const OpenDecision& facts,
                                 const LoaderOptions& options,
                                 const std::vector<FileIdentity>& files) {
  LMDBIO_TRY(const StreamState state, DecodeStreamState(saved));
  return ContinueStream(state, WantedStream(facts, options, files));
}

Result<StreamState> StreamFor(const OpenDecision& facts, const LoaderOptions& options,
                              const std::vector<FileIdentity>& files) {
  if (!options.state.empty()) return ContinueFrom(options.state, facts, options, files);
  StreamState state = WantedStream(facts, options, files);
  ScheduleOptions& schedule = state.schedule;
  const double record_bytes =
      static_cast<double>(facts.page_bytes_total) / static_cast<double>(facts.record_count);
  // Sizes that the options leave open come from the database alone. If they depended on ranks or
  // hosts, another job would get another sequence.
  const auto as_many_as_fill = [](uint64_t bytes, double unit_bytes, double most) {
    return static_cast<uint64_t>(std::clamp(static_cast<double>(bytes) / unit_bytes, 1.0, most));
  };
  if (schedule.walk.block_records == 0) {
    schedule.walk.block_records =
        as_many_as_fill(kShuffleBlockBytes, record_bytes, static_cast<double>(facts.record_count));
  }
  if (!DealsOut(options.order, options.shuffle, options.reuse)) {
    schedule.group_batches = 1;
  } else if (schedule.group_batches == 0) {
    schedule.group_batches =
        as_many_as_fill(kGroupBytesOfAllHosts, BatchBytes(facts, options), kGroupBatchesMax);
  }
  LMDBIO_TRY_VOID(CheckEpoch(options.epoch, facts.record_count * options.reuse));
  schedule.origin.position = options.epoch * facts.record_count * options.reuse;
  return state;
}

namespace {

Status CheckRecords(const OpenDecision& facts, const std::string& name) {
  if (facts.record_count == 0) {
    return BadOption(fmt::format("{}: the database holds no records", name));
  }
  return {};
}

// False: the strategy steps from record to record with a cursor, in key order.
bool FindsAnyRecord(const StrategyTraits& strategy) {
  return strategy.locating == LocateMethod::kScan ||
         strategy.locating == LocateMethod::kProvenance || strategy.locating == LocateMethod::kBest;
}

// The strategies of the papers walk with one cursor over a map of one file.
Status CheckListOptions(const OpenedFiles& files, const LoaderOptions& options) {
  const auto refuse = [&](std::string_view what, std::string_view instead) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} needs a single file; use {}", files.name(), what, instead));
  };
  const StrategyTraits& strategy = CompositionOf(options.strategy);
  if (!FindsAnyRecord(strategy) || strategy.engine == StrategyTraits::EngineChoice::kMmap) {
    return refuse(fmt::format("strategy {}", strategy.name), "auto");
  }
  if (options.engine == file::EngineKind::kMmap) return refuse("engine mmap", "uring or pread");
  if (options.joint_walk == JointWalkUse::kOn) return refuse("joint_walk on", "auto or off");
  if (options.exchange == ExchangeUse::kOn) return refuse("exchange on", "auto or off");
  return {};
}

// Looks for some of the files in the page cache.
Result<file::CacheProbe> ProbeFiles(const OpenedFiles& files) {
  constexpr size_t kProbedMax = 8;
  const size_t count = std::min(files.file_count(), kProbedMax);
  file::CacheProbe all{0, true};
  for (size_t i = 0; i < count; ++i) {
    LMDBIO_TRY(const file::CacheProbe one,
               file::ProbeCache(files.data_path(i * files.file_count() / count)));
    all.share += one.share / static_cast<double>(count);
    all.is_counted = all.is_counted && one.is_counted;
  }
  return all;
}

// As ChooseEngine. Several files are not used in place.
Status ChooseEngineOfList(const OpenedFiles& files, const LoaderOptions& options,
                          OpenDecision& facts) {
  using EngineChoice = StrategyTraits::EngineChoice;
  const EngineChoice choice = CompositionOf(options.strategy).engine;
  if (choice != EngineChoice::kProbe) {
    const bool is_pread = choice == EngineChoice::kPread;
    facts.engine =
        options.engine.value_or(is_pread ? file::EngineKind::kPread : file::EngineKind::kUring);
    facts.cache = options.cache.value_or(is_pread ? file::CachePolicy::kBuffered
                                                  : file::CachePolicy::kDirect);
    return {};
  }
  LMDBIO_TRY(const file::CacheProbe probe, ProbeFiles(files));
  const bool is_warm = probe.share >= kWarmShare;
  facts.engine =
      options.engine.value_or(is_warm ? file::EngineKind::kPread : file::EngineKind::kUring);
  // To look for a block in the page cache its file must be open, so files would be opened twice.
  const bool stay_open = files.file_count() <= file::OpenFilesMax(options.open_files_max) / 2;
  const auto otherwise = is_warm ? file::CachePolicy::kBuffered : file::CachePolicy::kDirect;
  facts.cache =
      options.cache.value_or(probe.is_counted && stay_open ? file::CachePolicy::kMixed : otherwise);
  return {};
}

}  // namespace

Status CheckServesView(const LoaderOptions& options) {
  const StrategyTraits& composition = CompositionOf(options.strategy);
  if (FindsAnyRecord(composition)) return {};
  return BadOption(
      fmt::format("strategy {} finds records one after the other, in key order, so it cannot serve "
                  "a view; use auto, scan or a strategy with provenance",
                  composition.name));
}

Status CheckHasBatch(const OpenDecision& facts, const std::string& data_path,
                     const LoaderOptions& options) {
  if (options.tail != Tail::kDrop || options.global_batch_size <= facts.record_count) return {};
  return BadOption(fmt::format(
      "{}: global_batch_size {} exceeds the {} {}, so tail drop leaves no batch; reduce "
      "global_batch_size or use another tail",
      data_path, options.global_batch_size, facts.record_count,
      facts.view_digest ? "samples" : "records"));
}

Status TakeView(const View& view, std::span<const ViewDatabase> sources,
                const std::string& data_path, OpenDecision& facts) {
  if (view.sample_count() == 0) {
    return BadOption(fmt::format("{}: the view has no samples", data_path));
  }
  // The mean record of a database stands for those that the view has of it.
  double sample_bytes = 0;
  for (size_t field = 0; field < view.field_count(); ++field) {
    const uint64_t record = view.RecordOf(0, field);
    const auto behind = std::ranges::upper_bound(sources, record, {}, &ViewDatabase::first_record);
    const file::Database& database = std::prev(behind)->database;
    sample_bytes += static_cast<double>(PageBytesOf(database)) /
                    static_cast<double>(std::max<uint64_t>(1, database.entry_count()));
  }
  facts.record_count = view.sample_count();
  facts.field_count = view.field_count();
  facts.view_digest = view.digest();
  facts.page_bytes_total =
      static_cast<uint64_t>(sample_bytes * static_cast<double>(view.sample_count()));
  return {};
}

Status CheckSameResolved(const OpenDecision& facts, const View& view,
                         const std::string& data_path) {
  if (facts.view_digest == view.digest()) return {};
  return Fail(
      ErrorCode::kStale,
      fmt::format("{}: the view has {} samples and digest {:016x}, on rank 0 {} and {:016x}: "
                  "this host sees other records",
                  data_path, view.sample_count(), view.digest(), facts.record_count,
                  facts.view_digest.value_or(0)));
}

Status CheckSameView(ranks::Group& group, const ViewSpec* spec) {
  const uint64_t mine = spec != nullptr ? DigestOf(*spec) : 0;
  LMDBIO_TRY(const std::vector<std::byte> bytes,
             group.AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<uint64_t> all(static_cast<size_t>(group.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return BadOption(
        fmt::format("the view of rank {} differs from that of rank 0; give all ranks "
                    "of the job the same view",
                    rank));
  }
  return {};
}

Result<OpenDecision> LookAtFiles(const OpenedFiles& files, const LoaderOptions& options,
                                 const HostMember& member, Notes& notes) {
  if (!files.is_single()) LMDBIO_TRY_VOID(CheckListOptions(files, options));
  OpenDecision facts;
  facts.file_count = files.file_count();
  for (size_t i = 0; i < files.file_count(); ++i) {
    LMDBIO_TRY(const uint64_t count, files.CountRecords(i));
    facts.record_count += count;
    facts.page_bytes_total += PageBytesOf(files.database(i));
  }
  LMDBIO_TRY_VOID(CheckRecords(facts, files.name()));
  facts.located_count = facts.record_count;
  facts.root = files.database(0).record().root;
  facts.snapshot = files.snapshot(0);
  facts.snapshot->file_size_bytes = files.end_bytes();
  LMDBIO_TRY_VOID(files.is_single()
                      ? ChooseEngine(files.data_path(0), options, member, facts, notes)
                      : ChooseEngineOfList(files, options, facts));
  return facts;
}

Status CheckSameFile(const OpenDecision& facts, const file::Snapshot& snapshot,
                     const std::string& data_path) {
  // A network file system may show an older state to one host than to another.
  const file::Snapshot& first = *facts.snapshot;
  if (snapshot.meta.transaction_id != first.meta.transaction_id) {
    return Fail(ErrorCode::kStale,
                fmt::format("{}: the newest transaction is {}, rank 0 sees {}", data_path,
                            snapshot.meta.transaction_id, first.meta.transaction_id));
  }
  if (snapshot.file_size_bytes != first.file_size_bytes) {
    return Fail(ErrorCode::kStale,
                fmt::format("{}: the file has {} bytes, rank 0 sees {}", data_path,
                            snapshot.file_size_bytes, first.file_size_bytes));
  }
  return {};
}

FileCaching KeepingFor(const OpenDecision& facts, const LoaderOptions& options,
                       uint64_t room_bytes) {
  const bool is_auto =
      CompositionOf(options.strategy).engine == StrategyTraits::EngineChoice::kProbe;
  if (!is_auto || facts.is_in_place) return FileCaching::kNone;
  const uint64_t file_bytes = facts.snapshot->file_size_bytes;
  if (options.keep_bytes < 0) return FileCaching::kNone;
  if (options.keep_bytes > 0) {
    const auto room = static_cast<uint64_t>(options.keep_bytes);
    return file_bytes <= room ? FileCaching::kAll : FileCaching::kNone;
  }
  // Several shards may run on one host, and each would take its share of the memory.
  const bool fits = options.num_shards == 1 && file_bytes <= room_bytes / kKeptRoomShare;
  const bool is_small = facts.page_bytes_total < facts.record_count * kScatteredBelowBytes;
  return fits && is_small ? FileCaching::kScattered : FileCaching::kNone;
}

ReadCost MeasureReads(const std::string& data_path, const file::EngineOptions& engine,
                      uint64_t file_bytes, uint64_t block_bytes, Notes& notes) {
  file::StorageCost cost = file::kAssumedCost;
  if (file_bytes >= kWorthProbingBytes) {
    std::vector<std::string> lines;
    const auto measured =
        file::MeasureStorageCost(data_path, engine, file_bytes, block_bytes, &lines);
    notes.Add(std::move(lines));
    if (measured) cost = *measured;
    if (!measured) notes.Add(measured.error().message() + ": using default read costs");
  }
  return {cost.request_s, cost.byte_s};
}

uint64_t StreamBytes(const OpenDecision& facts, const LoaderOptions& options) {
  if (options.max_batches == 0) return ~uint64_t{0};
  const double bytes = BatchBytes(facts, options) * static_cast<double>(options.max_batches);
  return bytes < 1e18 ? static_cast<uint64_t>(bytes) : ~uint64_t{0};
}

bool MayStagger(const OpenDecision& facts, const LoaderOptions& options) {
  const Staggering staggering = CompositionOf(options.strategy).staggering;
  if (staggering == Staggering::kNone || facts.is_in_place || facts.exchanges) return false;
  if (staggering == Staggering::kTokens || options.stagger > 0) return true;
  return StreamBytes(facts, options) >= kTrialWorthItFromBytes;
}

StaggerOptions StaggerFor(const LoaderOptions& options, uint64_t reader_count) {
  if (reader_count < 2 || options.stagger >= reader_count) return {};
  if (options.stagger > 0) return {{options.stagger}, false};
  const bool is_auto = CompositionOf(options.strategy).staggering == Staggering::kIfWorthIt;
  return {
      is_auto ? TokenCountsToTry(reader_count, kTokenCountsOfAuto) : TokenCountsToTry(reader_count),
      true};
}

namespace {

// The bytes of four groups. A tenth more leaves room for batches above the mean.
double FourGroups(double group_bytes) { return 4.4 * group_bytes; }

// Makes slots smaller, and reuses their memory sooner.
void LimitWrap(uint64_t bytes, SlotLimits& limits) {
  limits.wrap_bytes = bytes;
  limits.target_bytes = std::min(limits.target_bytes, bytes / 4);
  limits.scattered_bytes_max = std::min(limits.scattered_bytes_max, bytes / 2);
}

void LimitReadAhead(const LoaderOptions& options, const Schedule& schedule, double group_bytes,
                    SlotLimits& limits) {
  const double groups =
      static_cast<double>(options.prefetch_batches) / static_cast<double>(schedule.group_batches());
  // One more batch or group is in use by the ranks.
  const double bytes = std::max(FourGroups(group_bytes), 1.1 * group_bytes * (groups + 1));
  if (bytes < static_cast<double>(limits.wrap_bytes)) {
    LimitWrap(static_cast<uint64_t>(bytes), limits);
  }
}

}  // namespace

bool MayExchange(const OpenDecision& facts, const LoaderOptions& options,
                 const HostMember& member) {
  const StrategyTraits& strategy = CompositionOf(options.strategy);
  const bool reads_blocks =
      facts.engine != file::EngineKind::kMmap && strategy.locating != LocateMethod::kNone;
  if (facts.file_count > 1) return false;
  // A reader that waits for its turn requests nothing, and the others would wait for it.
  const bool takes_turns = options.stagger > 0 || strategy.staggering == Staggering::kTokens;
  // The samples of a view may lie anywhere.
  return !member.is_only_host && options.readers_per_host == 1 && !facts.is_in_place &&
         !facts.view_digest && reads_blocks && !takes_turns &&
         options.order == Order::kSequential && options.block_bytes <= kExchangeChunkBytesMax;
}

bool ReadsAlone(const OpenDecision& facts, const LoaderOptions& options, const HostMember& member) {
  // A single rank leaves processors to a thread that works ahead. Without a layout, a job needs one
  // thread that walks for all ranks.
  const bool has_layout = facts.locating == LocateMethod::kProvenance;
  if (!facts.is_in_place || !has_layout || member.host->size() == 1) return false;
  if (options.readers_per_host > 1 || options.prefetch_batches > 0) return false;
  // The one reader of a host holds the snapshot for all of its ranks.
  if (options.snapshot == SnapshotMode::kPinned) return false;
  // Ranks would need the records of others.
  if (options.reuse > 1 && options.reuse_among == ReuseAmong::kHost) return false;
  return options.placement.empty();
}

bool WantsExchange(const OpenDecision& facts, const LoaderOptions& options,
                   const HostMember& member, const std::string& data_path) {
  if (options.exchange == ExchangeUse::kOff || !MayExchange(facts, options, member)) return false;
  if (options.exchange == ExchangeUse::kOn) return true;
  const bool is_auto = CompositionOf(options.strategy).locating == LocateMethod::kBest;
  if (!is_auto || facts.cache == file::CachePolicy::kBuffered) return false;
  const double host_bytes = BatchBytes(facts, options) *
                            static_cast<double>(member.ranks.local_ranks.size()) /
                            member.ranks.rank_count;
  if (host_bytes >= kSmallestShare * static_cast<double>(options.block_bytes)) return false;
  const Result<double> read_s = file::MeasureReadSeconds(
      data_path, {facts.engine, facts.cache, 1, {}, false}, facts.snapshot->file_size_bytes);
  // Storage that cannot be measured is read as if it were fast; the readers report its errors.
  return read_s && *read_s >= kSlowReadSeconds;
}

SlotLimits LimitsFor(const OpenDecision& facts, const LoaderOptions& options,
                     const Schedule& schedule, int local_count, int rank_count,
                     uint64_t ring_bytes) {
  SlotLimits limits;
  const double group_bytes = BatchBytes(facts, options) *
                             static_cast<double>(schedule.group_batches()) * local_count /
                             rank_count;
  limits.ring_bytes = ring_bytes;
  limits.group_bytes =
      static_cast<uint64_t>(std::min(group_bytes, static_cast<double>(ring_bytes)));
  limits.stream_batches = options.max_batches;
  limits.field_count = facts.field_count;
  limits.is_in_place = facts.is_in_place;
  // Assumes that each host has about as many ranks as this one.
  const auto hosts = static_cast<uint64_t>(std::max(1, rank_count / std::max(1, local_count)));
  const uint64_t slot_bytes =
      std::clamp(kSlotTargetBytesOfAllHosts / hosts, kSlotTargetBytesMin, kSlotTargetBytes);
  const uint64_t slots_in_use = hosts == 1 ? kSlotsInUse : kSlotsInUseOfSeveralHosts;
  limits.target_bytes = std::min(slot_bytes, ring_bytes / slots_in_use);
  // The strategies of the papers without coalescing read one batch or group at a time.
  const StrategyTraits& composition = CompositionOf(options.strategy);
  if (composition.coalescing == Coalescing::kNone) limits.group_count_max = 1;
  limits.expects_scattered =
      options.order == Order::kShuffle && options.shuffle == Shuffle::kGlobal;
  // Two scattered slots must fit. A slot may exceed its limit by one group.
  const auto half = static_cast<double>(ring_bytes) / 2 - 1.1 * group_bytes;
  if (composition.coalescing == Coalescing::kNeighbours && !facts.is_in_place && half > 0) {
    limits.scattered_bytes_max = static_cast<uint64_t>(half);
  }
  // At least four batches or groups: one in use, one ready and two in flight, so that the storage
  // is busy at the end of each of them.
  const auto four_groups =
      static_cast<uint64_t>(std::min(FourGroups(group_bytes), static_cast<double>(ring_bytes)));
  limits.wrap_bytes = std::min(ring_bytes, std::max(four_groups, slots_in_use * slot_bytes));
  if (composition.read_sizing == ReadSizing::kFromBudget) {
    limits.target_bytes = ChunkBytes(ring_bytes, facts.read_cost);
    limits.wrap_bytes = ring_bytes;
  }
  if (options.prefetch_batches > 0) LimitReadAhead(options, schedule, group_bytes, limits);
  return limits;
}

void LimitToRoom(uint64_t room_bytes, SlotLimits& limits) {
  const double four_groups = FourGroups(static_cast<double>(limits.group_bytes));
  const uint64_t bytes = std::max(room_bytes / 2, static_cast<uint64_t>(four_groups));
  // Slots that grow use all of the window memory.
  if (room_bytes / 2 < limits.ring_bytes) limits.scattered_bytes_max = 0;
  if (bytes < limits.wrap_bytes) LimitWrap(bytes, limits);
}

ReadPlanOptions PlanOptionsFor(const OpenDecision& facts, const LoaderOptions& options,
                               const file::Snapshot& snapshot, const SlotLimits& limits,
                               int reader_count) {
  ReadPlanOptions plan;
  plan.page_format = snapshot.page_format;
  plan.file_size_bytes = facts.snapshot->file_size_bytes;
  plan.coalescing = CompositionOf(options.strategy).coalescing;
  plan.block_bytes_max = options.block_bytes;
  // A caller that gives another size than the default wants it in every strategy.
  const bool is_given = options.block_bytes != LoaderOptions().block_bytes;
  if (CompositionOf(options.strategy).read_sizing == ReadSizing::kFromBudget && !is_given) {
    plan.whole_bytes_max = ChunkReadBytes(limits.target_bytes, limits.group_bytes,
                                          static_cast<uint64_t>(std::max(1, reader_count)));
  }
  plan.is_in_place = facts.is_in_place;
  return plan;
}

}  // namespace lmdbio::load
