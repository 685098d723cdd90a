#include "lmdbio/loader/loader_facts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/io/cache_probe.h"
#include "lmdbio/loader/locator.h"

namespace lmdbio::loader {
namespace {

constexpr uint64_t kMemoryBudgetMin = 1 << 20;

// Large enough that a slot's edges cost nothing, small enough that several fit and that the first
// one is there soon.
constexpr uint64_t kSlotTargetBytes = 8 << 20;
// Hosts share storage: the more they are, the less each has under way, or what one of them waits
// for queues behind what the others want later.
constexpr uint64_t kSlotTargetBytesOfAllHosts = 32 << 20;
constexpr uint64_t kSlotTargetBytesMin = 2 << 20;
// Slots of that size in flight or in use, in ordinary times.
constexpr uint64_t kSlotsInUse = 8;

// A file of which more than this lies in the page cache is read from there.
constexpr double kWarmShare = 0.9;
// And if all of it does, but for a few pages, it is not read at all.
constexpr double kInPlaceShare = 0.995;

tl::unexpected<Error> BadOption(std::string why) {
  return Fail(ErrorCode::kInvalidArgument, std::move(why));
}

struct NamedOption {
  std::string_view name;
  uint64_t value;
};

constexpr size_t kOptionCount = 14;

std::array<NamedOption, kOptionCount> OptionsInOrder(const LoaderOptions& options) {
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  return {{
      {"database name", std::hash<std::string>{}(options.database_name)},
      {"strategy", number(options.strategy)},
      {"batch size", options.batch_size},
      {"greatest number of batches", options.batch_count_max},
      {"share", number(options.share)},
      {"tail", number(options.tail)},
      {"way with errors", number(options.on_error)},
      {"snapshot mode", number(options.snapshot)},
      {"leave to look at records in place", number(options.in_place)},
      {"number of readers per host", options.readers_per_host},
      {"memory budget", options.memory_budget_bytes},
      {"engine", options.engine ? number(*options.engine) + 1 : 0},
      {"cache policy", options.cache ? number(*options.cache) + 1 : 0},
      {"block size", options.block_bytes},
  }};
}

Status ChooseEngine(const std::string& data_path, const LoaderOptions& options,
                    LoaderFacts& facts) {
  using Engine = Composition::Engine;
  switch (CompositionOf(options.strategy).engine) {
    case Engine::kMmap:
      facts.engine = io::EngineKind::kMmap;
      facts.cache = io::CachePolicy::kBuffered;
      return {};
    case Engine::kPread:
      facts.engine = options.engine.value_or(io::EngineKind::kPread);
      facts.cache = options.cache.value_or(io::CachePolicy::kBuffered);
      return {};
    case Engine::kUringDirect:
      facts.engine = options.engine.value_or(io::EngineKind::kUring);
      facts.cache = options.cache.value_or(io::CachePolicy::kDirect);
      return {};
    case Engine::kProbe:
      break;
  }
  LMDBIO_TRY(const double cached, io::CachedShare(data_path));
  const bool is_warm = cached >= kWarmShare;
  facts.is_in_place = cached >= kInPlaceShare && options.in_place && !options.engine &&
                      !options.cache && options.snapshot != SnapshotMode::kOptimistic;
  facts.engine = options.engine.value_or(is_warm ? io::EngineKind::kPread : io::EngineKind::kUring);
  facts.cache =
      options.cache.value_or(is_warm ? io::CachePolicy::kBuffered : io::CachePolicy::kDirect);
  return {};
}

}  // namespace

Status CheckOptions(const LoaderOptions& options) {
  if (options.batch_size == 0) return BadOption("the batch size is 0");
  if (options.readers_per_host == 0) return BadOption("the number of readers per host is 0");
  if (options.queue_depth == 0) return BadOption("the queue depth is 0");
  if (options.block_bytes == 0 || options.block_bytes % layout::kStretchAlignBytes != 0) {
    return BadOption(fmt::format("the block size, {} bytes, is no multiple of {}",
                                 options.block_bytes, layout::kStretchAlignBytes));
  }
  if (options.memory_budget_bytes < kMemoryBudgetMin) {
    return BadOption(fmt::format("the memory budget, {} bytes, is below {}",
                                 options.memory_budget_bytes, kMemoryBudgetMin));
  }
  return {};
}

Status CheckSameOptions(comm::Group& group, const LoaderOptions& options) {
  const auto mine = OptionsInOrder(options);
  std::array<uint64_t, kOptionCount> values{};
  for (size_t i = 0; i < kOptionCount; ++i) values[i] = mine[i].value;
  LMDBIO_TRY(const std::vector<std::byte> all, group.AllGather(std::as_bytes(std::span(values))));
  for (int rank = 1; rank < group.size(); ++rank) {
    std::array<uint64_t, kOptionCount> first{};
    std::array<uint64_t, kOptionCount> other{};
    std::memcpy(first.data(), all.data(), sizeof first);
    std::memcpy(other.data(), all.data() + static_cast<size_t>(rank) * sizeof other, sizeof other);
    for (size_t i = 0; i < kOptionCount; ++i) {
      if (first[i] != other[i]) {
        return BadOption(fmt::format("rank {} opens the loader with another {} than rank 0", rank,
                                     mine[i].name));
      }
    }
  }
  return {};
}

Result<LoaderFacts> LookAtDatabase(const layout::Database& database, const std::string& data_path,
                                   const LoaderOptions& options) {
  LoaderFacts facts;
  LMDBIO_TRY(facts.record_count, CountRecords(database));
  if (facts.record_count == 0) {
    return BadOption(fmt::format("{}: the database holds no records", data_path));
  }
  if (options.tail == Tail::kDrop && options.batch_size > facts.record_count) {
    return BadOption(
        fmt::format("{}: a batch of {} is more than the {} records there are, and the "
                    "rest is to be dropped: nothing would be left",
                    data_path, options.batch_size, facts.record_count));
  }
  const layout::Snapshot& snapshot = database.pages().snapshot();
  facts.page_bytes_total = (database.record().leaf_pages + database.record().overflow_pages) *
                           snapshot.page_format.page_size_bytes();
  facts.snapshot = snapshot;
  LMDBIO_TRY_VOID(ChooseEngine(data_path, options, facts));
  return facts;
}

Status CheckSameFile(const LoaderFacts& facts, const layout::Snapshot& snapshot,
                     const std::string& data_path) {
  const layout::Snapshot& first = *facts.snapshot;
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

SlotLimits LimitsFor(const LoaderFacts& facts, const LoaderOptions& options, int local_count,
                     int rank_count, uint64_t ring_bytes) {
  SlotLimits limits;
  const double batch_bytes = static_cast<double>(facts.page_bytes_total) /
                             static_cast<double>(facts.record_count) *
                             static_cast<double>(options.batch_size) * local_count / rank_count;
  limits.ring_bytes = ring_bytes;
  limits.stream_batches = options.batch_count_max;
  limits.is_in_place = facts.is_in_place;
  const auto hosts = static_cast<uint64_t>(std::max(1, rank_count / std::max(1, local_count)));
  const uint64_t slot_bytes =
      std::clamp(kSlotTargetBytesOfAllHosts / hosts, kSlotTargetBytesMin, kSlotTargetBytes);
  limits.target_bytes = std::min(slot_bytes, ring_bytes / kSlotsInUse);
  // The papers' strategies without coalescing read a batch at a time.
  const Composition& composition = CompositionOf(options.strategy);
  if (composition.coalescing == layout::Coalescing::kNone) limits.batch_count_max = 1;
  // Four batches at least: one in use, one ready, two under way, so that the storage still has work
  // when one of them ends.
  const auto four_batches =
      static_cast<uint64_t>(std::min(4.4 * batch_bytes, static_cast<double>(ring_bytes)));
  limits.wrap_bytes = std::min(ring_bytes, std::max(four_batches, kSlotsInUse * slot_bytes));
  return limits;
}

layout::PlanOptions PlanOptionsFor(const LoaderFacts& facts, const LoaderOptions& options,
                                   const layout::Snapshot& snapshot) {
  layout::PlanOptions plan;
  plan.page_format = snapshot.page_format;
  plan.file_size_bytes = facts.snapshot->file_size_bytes;
  plan.coalescing = CompositionOf(options.strategy).coalescing;
  plan.block_bytes_max = options.block_bytes;
  plan.is_in_place = facts.is_in_place;
  return plan;
}

}  // namespace lmdbio::loader
