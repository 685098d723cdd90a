#include "lmdbio/api/c/c_options.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/api/c/c_struct.h"

namespace lmdbio::api {
namespace {

using load::LoaderOptions;

// What earlier versions of the struct ended with: the first one that was given to anybody.
constexpr size_t kEarlierStructBytes[] = {offsetof(lmdbio_options, placement)};

Status TakeOrder(const lmdbio_options& from, LoaderOptions& to) {
  struct OrderChoice {
    load::Order order;
    load::Shuffle shuffle;
  };
  using load::Order;
  using load::Shuffle;
  constexpr OrderChoice kOrders[] = {{Order::kSequential, Shuffle::kGlobal},
                                     {Order::kShuffle, Shuffle::kGlobal},
                                     {Order::kShuffle, Shuffle::kBlock},
                                     {Order::kChunked, Shuffle::kGlobal}};
  static_assert(LMDBIO_ORDER_SHUFFLE == 1 && LMDBIO_ORDER_SHUFFLE_BLOCK == 2 &&
                LMDBIO_ORDER_CHUNKED == 3);
  OrderChoice choice{};
  LMDBIO_TRY_VOID(Choose("options.order", from.order, kOrders, choice));
  to.order = choice.order;
  to.shuffle = choice.shuffle;
  to.seed = from.seed;
  to.block_records = from.block_records;
  to.group_batches = from.group_batches;
  Take(from.reuse, to.reuse);
  to.epoch = from.epoch;
  if (from.state != nullptr) to.state = from.state;
  return {};
}

Status TakeChoices(const lmdbio_options& from, LoaderOptions& to) {
  using load::OnError;
  using load::Share;
  using load::SnapshotMode;
  using load::Tail;
  constexpr Tail kTails[] = {Tail::kWrap, Tail::kShort, Tail::kDrop};
  constexpr Share kShares[] = {Share::kBlock, Share::kRoundRobin, Share::kFill};
  constexpr OnError kOnErrors[] = {OnError::kRaise, OnError::kSkip};
  constexpr SnapshotMode kSnapshots[] = {SnapshotMode::kImmutable, SnapshotMode::kOptimistic,
                                         SnapshotMode::kPinned};
  LMDBIO_TRY_VOID(Choose("options.tail", from.tail, kTails, to.tail));
  LMDBIO_TRY_VOID(Choose("options.share", from.share, kShares, to.share));
  LMDBIO_TRY_VOID(Choose("options.on_error", from.on_error, kOnErrors, to.on_error));
  return Choose("options.snapshot", from.snapshot, kSnapshots, to.snapshot);
}

Result<file::EngineKind> EngineNamed(std::string_view name) {
  for (const file::EngineKind kind :
       {file::EngineKind::kMmap, file::EngineKind::kPread, file::EngineKind::kUring}) {
    if (name == file::EngineKindName(kind)) return kind;
  }
  return BadField("options.engine", fmt::format("there is no \"{}\": mmap, pread or uring", name));
}

Status TakeStrategy(const lmdbio_options& from, LoaderOptions& to) {
  if (from.strategy != nullptr) {
    Result<load::Strategy> strategy = load::ParseStrategy(from.strategy);
    if (!strategy) return Fail(std::move(strategy).error().Within("options.strategy"));
    to.strategy = *strategy;
  }
  if (from.engine != nullptr) {
    LMDBIO_TRY(to.engine, EngineNamed(from.engine));
  }
  return {};
}

Status TakeMemory(const lmdbio_options& from, LoaderOptions& to) {
  if (from.keep_bytes_max < -1) {
    return BadField("options.keep_bytes_max", fmt::format("{} is below -1", from.keep_bytes_max));
  }
  Take(from.memory_budget_bytes, to.memory_budget_bytes);
  if (from.keep_bytes_max != 0) {
    to.keep_bytes_max = static_cast<uint64_t>(std::max<int64_t>(0, from.keep_bytes_max));
  }
  to.prefetch_batches = from.prefetch_batches;
  to.in_place = from.no_map == 0;
  Take(from.readers_per_host, to.readers_per_host);
  Take(from.queue_depth, to.queue_depth);
  Take(from.block_bytes, to.block_bytes);
  return {};
}

}  // namespace

Result<lmdbio_options> CompleteOptions(const lmdbio_options* options) {
  return CompleteStruct("options", "LMDBIO_OPTIONS_INIT", options, kEarlierStructBytes);
}

Result<LoaderOptions> LoaderOptionsOf(const lmdbio_options& options) {
  LoaderOptions to;
  if (options.database_name != nullptr) to.database_name = options.database_name;
  Take(options.batch_size, to.batch_size);
  to.batch_count_max = options.batch_count_max;
  LMDBIO_TRY_VOID(TakeOrder(options, to));
  LMDBIO_TRY_VOID(TakeChoices(options, to));
  Take(options.num_shards, to.num_shards);
  to.shard_id = options.shard_id;
  LMDBIO_TRY_VOID(TakeMemory(options, to));
  LMDBIO_TRY_VOID(TakeStrategy(options, to));
  if (options.placement != nullptr) to.placement = options.placement;
  return to;
}

Result<load::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options) {
  LMDBIO_TRY(const LoaderOptions all, LoaderOptionsOf(options));
  load::RecordReaderOptions to;
  to.database_name = all.database_name;
  to.snapshot = all.snapshot;
  to.engine = all.engine.value_or(to.engine);
  to.queue_depth = all.queue_depth;
  to.block_bytes = all.block_bytes;
  return to;
}

}  // namespace lmdbio::api
