#include "lmdbio/api/c/c_options.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/api/c/c_struct.h"
#include "lmdbio/load/plan/option_list.h"

namespace lmdbio::api {
namespace {

using load::LoaderOptions;

// The sizes of earlier structs, both of version 0.1.0: without and with placement.
constexpr size_t kEarlierStructBytes[] = {offsetof(lmdbio_options, placement),
                                          offsetof(lmdbio_options, shuffle)};

// Values that have another meaning in structs of version 0.1.0.
constexpr int kEarlierTailWrap = 0;
constexpr int kEarlierShuffleBlock = 2;  // in `order`

// A field that is 0 has its default.
template <typename T>
Status TakeField(std::string_view /*field*/, T from, T& to) {
  Take(from, to);
  return {};
}

Status TakeField(std::string_view /*field*/, const char* from, std::string& to) {
  if (from != nullptr) to = from;
  return {};
}

Status TakeField(std::string_view field, int from, bool& to) {
  if (from < -1 || from > 1) {
    return BadField(
        field,
        fmt::format("{} is out of range; expected 1 (yes), -1 (no) or 0 (the default)", from));
  }
  if (from != 0) to = from > 0;
  return {};
}

// A size whose -1 means "never".
Status TakeField(std::string_view field, int64_t from, int64_t& to) {
  if (from < -1) {
    return BadField(field, fmt::format("{} is out of range; expected -1 or more", from));
  }
  to = from;
  return {};
}

// A choice that is an enum in C.
template <typename T>
struct ChoiceNumber {
  int number;
  T value;
};

template <typename T, size_t kCount>
Status TakeField(std::string_view field, int from, const ChoiceNumber<T> (&numbers)[kCount],
                 T& to) {
  for (const ChoiceNumber<T>& choice : numbers) {
    if (choice.number != from) continue;
    to = choice.value;
    return {};
  }
  return BadField(field, fmt::format("{} is unknown; expected a constant of lmdbio.h", from));
}

// A choice that is a name in C.
template <typename T>
Status TakeName(std::string_view field, std::string_view name, T& to) {
  std::string known;
  for (const load::OptionChoice<T>& choice : load::ChoicesOf(T{})) {
    if (choice.name == name) {
      to = choice.value;
      return {};
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice.name);
  }
  return BadField(field, fmt::format("'{}' is unknown; expected one of {}", name, known));
}

template <typename T>
Status TakeField(std::string_view field, const char* from, T& to) {
  return from == nullptr ? Status() : TakeName(field, from, to);
}

template <typename T>
Status TakeField(std::string_view field, const char* from, std::optional<T>& to) {
  if (from == nullptr) return {};
  T value{};
  LMDBIO_TRY_VOID(TakeName(field, from, value));
  to = value;
  return {};
}

// Begin generated TakeFields: scripts/generate_options.py, from api/options.toml.
constexpr ChoiceNumber<load::Order> kOrderNumbers[] = {
    {LMDBIO_ORDER_SEQUENTIAL, load::Order::kSequential},
    {LMDBIO_ORDER_SHUFFLE, load::Order::kShuffle},
    {LMDBIO_ORDER_CHUNKED, load::Order::kChunked},
};

constexpr ChoiceNumber<load::Tail> kTailNumbers[] = {
    {0, load::Tail::kShort},
    {LMDBIO_TAIL_SHORT, load::Tail::kShort},
    {LMDBIO_TAIL_DROP, load::Tail::kDrop},
    {LMDBIO_TAIL_WRAP, load::Tail::kWrap},
};

constexpr ChoiceNumber<load::Share> kShareNumbers[] = {
    {LMDBIO_SHARE_BLOCK, load::Share::kBlock},
    {LMDBIO_SHARE_ROUND_ROBIN, load::Share::kRoundRobin},
    {LMDBIO_SHARE_FILL, load::Share::kFill},
};

constexpr ChoiceNumber<load::OnError> kOnErrorNumbers[] = {
    {LMDBIO_ON_ERROR_RAISE, load::OnError::kRaise},
    {LMDBIO_ON_ERROR_SKIP, load::OnError::kSkip},
};

constexpr ChoiceNumber<load::SnapshotMode> kSnapshotModeNumbers[] = {
    {LMDBIO_SNAPSHOT_IMMUTABLE, load::SnapshotMode::kImmutable},
    {LMDBIO_SNAPSHOT_OPTIMISTIC, load::SnapshotMode::kOptimistic},
    {LMDBIO_SNAPSHOT_PINNED, load::SnapshotMode::kPinned},
};

constexpr ChoiceNumber<load::Shuffle> kShuffleNumbers[] = {
    {LMDBIO_SHUFFLE_GLOBAL, load::Shuffle::kGlobal},
    {LMDBIO_SHUFFLE_BLOCK, load::Shuffle::kBlock},
};

constexpr ChoiceNumber<load::ReuseAmong> kReuseAmongNumbers[] = {
    {LMDBIO_REUSE_AMONG_RANK, load::ReuseAmong::kRank},
    {LMDBIO_REUSE_AMONG_HOST, load::ReuseAmong::kHost},
};

constexpr ChoiceNumber<load::HugePageUse> kHugePageUseNumbers[] = {
    {LMDBIO_HUGE_PAGES_AUTO, load::HugePageUse::kAuto},
    {LMDBIO_HUGE_PAGES_OFF, load::HugePageUse::kOff},
};

constexpr ChoiceNumber<load::WindowMemoryUse> kWindowMemoryUseNumbers[] = {
    {LMDBIO_WINDOW_MEMORY_AUTO, load::WindowMemoryUse::kAuto},
    {LMDBIO_WINDOW_MEMORY_MPI, load::WindowMemoryUse::kMpi},
};

constexpr ChoiceNumber<load::JointWalkUse> kJointWalkUseNumbers[] = {
    {LMDBIO_JOINT_WALK_AUTO, load::JointWalkUse::kAuto},
    {LMDBIO_JOINT_WALK_ON, load::JointWalkUse::kOn},
    {LMDBIO_JOINT_WALK_OFF, load::JointWalkUse::kOff},
};

constexpr ChoiceNumber<load::ExchangeUse> kExchangeUseNumbers[] = {
    {LMDBIO_EXCHANGE_AUTO, load::ExchangeUse::kAuto},
    {LMDBIO_EXCHANGE_ON, load::ExchangeUse::kOn},
    {LMDBIO_EXCHANGE_OFF, load::ExchangeUse::kOff},
};

Result<LoaderOptions> TakeFields(const lmdbio_options& from) {
  LoaderOptions to;
  LMDBIO_TRY_VOID(TakeField("options.database_name", from.database_name, to.database_name));
  LMDBIO_TRY_VOID(
      TakeField("options.global_batch_size", from.global_batch_size, to.global_batch_size));
  LMDBIO_TRY_VOID(TakeField("options.max_batches", from.max_batches, to.max_batches));
  LMDBIO_TRY_VOID(TakeField("options.order", from.order, kOrderNumbers, to.order));
  LMDBIO_TRY_VOID(TakeField("options.tail", from.tail, kTailNumbers, to.tail));
  LMDBIO_TRY_VOID(TakeField("options.share", from.share, kShareNumbers, to.share));
  LMDBIO_TRY_VOID(TakeField("options.on_error", from.on_error, kOnErrorNumbers, to.on_error));
  LMDBIO_TRY_VOID(TakeField("options.snapshot", from.snapshot, kSnapshotModeNumbers, to.snapshot));
  LMDBIO_TRY_VOID(TakeField("options.seed", from.seed, to.seed));
  LMDBIO_TRY_VOID(TakeField("options.block_records", from.block_records, to.block_records));
  LMDBIO_TRY_VOID(TakeField("options.group_batches", from.group_batches, to.group_batches));
  LMDBIO_TRY_VOID(TakeField("options.reuse", from.reuse, to.reuse));
  LMDBIO_TRY_VOID(TakeField("options.epoch", from.epoch, to.epoch));
  LMDBIO_TRY_VOID(TakeField("options.state", from.state, to.state));
  LMDBIO_TRY_VOID(TakeField("options.num_shards", from.num_shards, to.num_shards));
  LMDBIO_TRY_VOID(TakeField("options.shard_id", from.shard_id, to.shard_id));
  LMDBIO_TRY_VOID(
      TakeField("options.memory_budget_bytes", from.memory_budget_bytes, to.memory_budget_bytes));
  LMDBIO_TRY_VOID(TakeField("options.keep_bytes", from.keep_bytes, to.keep_bytes));
  LMDBIO_TRY_VOID(
      TakeField("options.prefetch_batches", from.prefetch_batches, to.prefetch_batches));
  LMDBIO_TRY_VOID(TakeField("options.allow_map", from.allow_map, to.allow_map));
  LMDBIO_TRY_VOID(
      TakeField("options.readers_per_host", from.readers_per_host, to.readers_per_host));
  LMDBIO_TRY_VOID(TakeField("options.queue_depth", from.queue_depth, to.queue_depth));
  LMDBIO_TRY_VOID(TakeField("options.block_bytes", from.block_bytes, to.block_bytes));
  LMDBIO_TRY_VOID(TakeField("options.strategy", from.strategy, to.strategy));
  LMDBIO_TRY_VOID(TakeField("options.engine", from.engine, to.engine));
  LMDBIO_TRY_VOID(TakeField("options.placement", from.placement, to.placement));
  LMDBIO_TRY_VOID(TakeField("options.shuffle", from.shuffle, kShuffleNumbers, to.shuffle));
  LMDBIO_TRY_VOID(
      TakeField("options.reuse_among", from.reuse_among, kReuseAmongNumbers, to.reuse_among));
  LMDBIO_TRY_VOID(TakeField("options.cache", from.cache, to.cache));
  LMDBIO_TRY_VOID(TakeField("options.stagger", from.stagger, to.stagger));
  LMDBIO_TRY_VOID(
      TakeField("options.huge_pages", from.huge_pages, kHugePageUseNumbers, to.huge_pages));
  LMDBIO_TRY_VOID(TakeField("options.window_memory", from.window_memory, kWindowMemoryUseNumbers,
                            to.window_memory));
  LMDBIO_TRY_VOID(TakeField("options.layout_cache", from.layout_cache, to.layout_cache));
  LMDBIO_TRY_VOID(
      TakeField("options.joint_walk", from.joint_walk, kJointWalkUseNumbers, to.joint_walk));
  LMDBIO_TRY_VOID(TakeField("options.exchange", from.exchange, kExchangeUseNumbers, to.exchange));
  LMDBIO_TRY_VOID(TakeField("options.open_files_max", from.open_files_max, to.open_files_max));
  return to;
}
// End generated TakeFields.

// Gives the values of a struct of version 0.1.0 the numbers of today. Its `tail` has 0 for "wrap",
// its `order` has a number for block shuffling, and its `allow_map` was `no_map`, with 1 for "yes".
void Modernise(lmdbio_options& options) {
  if (options.tail == kEarlierTailWrap) options.tail = LMDBIO_TAIL_WRAP;
  if (options.order == kEarlierShuffleBlock) {
    options.order = LMDBIO_ORDER_SHUFFLE;
    options.shuffle = LMDBIO_SHUFFLE_BLOCK;
  }
  options.allow_map = options.allow_map != 0 ? -1 : 0;
}

}  // namespace

Result<lmdbio_options> CompleteOptions(const lmdbio_options* options) {
  // The size of the caller's struct tells its version. Fields that it lacks are 0, the default.
  LMDBIO_TRY(lmdbio_options complete,
             CompleteStruct("options", "LMDBIO_OPTIONS_INIT", options, kEarlierStructBytes));
  // Version 0.1.0 had two structs, and both end before `shuffle`.
  const bool is_earlier =
      options != nullptr && complete.struct_size <= offsetof(lmdbio_options, shuffle);
  if (is_earlier) Modernise(complete);
  return complete;
}

Result<LoaderOptions> LoaderOptionsOf(const lmdbio_options& options) { return TakeFields(options); }

Result<load::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options) {
  // One struct serves loaders and datasets. A dataset ignores the options of order and ranks.
  LMDBIO_TRY(const LoaderOptions all, LoaderOptionsOf(options));
  load::RecordReaderOptions to;
  to.database_name = all.database_name;
  to.snapshot = all.snapshot;
  to.engine = all.engine.value_or(to.engine);
  to.cache = all.cache.value_or(to.cache);
  to.queue_depth = all.queue_depth;
  to.block_bytes = all.block_bytes;
  to.layout_cache = all.layout_cache;
  to.open_files_max = all.open_files_max;
  return to;
}

Result<std::vector<load::DatabasePath>> ListOf(const lmdbio_files* files,
                                               const std::string& database_name) {
  if (files == nullptr) return Fail(ErrorCode::kInvalidArgument, "files is NULL");
  LMDBIO_TRY(const lmdbio_files from, CompleteStruct("files", "LMDBIO_FILES_INIT", files));
  if (from.paths == nullptr && from.count > 0) return BadField("files.paths", "is NULL");
  std::vector<load::DatabasePath> list;
  list.reserve(from.count);
  for (size_t i = 0; i < from.count; ++i) {
    if (from.paths[i] == nullptr) return BadField(fmt::format("files.paths[{}]", i), "is NULL");
    const char* const name = from.database_names != nullptr ? from.database_names[i] : nullptr;
    list.push_back({from.paths[i], name != nullptr ? name : database_name});
  }
  return list;
}

}  // namespace lmdbio::api
