#include "lmdbio/load/loader/idle_options.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

// Collects the notes.
class IdleOptions {
 public:
  explicit IdleOptions(const LoaderOptions& options)
      : strategy_(CompositionOf(options.strategy).name) {}

  // The option is idle because of the strategy.
  void Add(std::string_view option, std::string_view why) {
    notes_.push_back(fmt::format("{} has no effect with strategy {}: {}", option, strategy_, why));
  }
  // The option is idle for another reason.
  void AddHere(std::string_view option, std::string_view why) {
    notes_.push_back(fmt::format("{} has no effect: {}", option, why));
  }
  std::vector<std::string> Take() { return std::move(notes_); }

 private:
  std::string_view strategy_;
  std::vector<std::string> notes_;
};

// liblmdb reads for every rank by itself, so nothing is read ahead, shared or kept.
void AddOfBaseline(const LoaderOptions& options, IdleOptions& idle) {
  const LoaderOptions defaults;
  constexpr std::string_view kNoReaders = "every rank reads through liblmdb's map";
  const std::pair<bool, std::string_view> given[] = {
      {options.memory_budget_bytes != defaults.memory_budget_bytes, "memory_budget_bytes"},
      {options.prefetch_batches != defaults.prefetch_batches, "prefetch_batches"},
      {options.readers_per_host != defaults.readers_per_host, "readers_per_host"},
      {options.queue_depth != defaults.queue_depth, "queue_depth"},
      {options.block_bytes != defaults.block_bytes, "block_bytes"},
      {options.huge_pages != defaults.huge_pages, "huge_pages"},
      {options.window_memory != defaults.window_memory, "window_memory"},
      {options.on_error != defaults.on_error, "on_error"},
      {options.snapshot != defaults.snapshot, "snapshot"},
  };
  for (const auto& [is_given, name] : given) {
    if (is_given) idle.Add(name, kNoReaders);
  }
}

void AddOfEngine(const LoaderOptions& options, const OpenDecision& decision, IdleOptions& idle) {
  if (CompositionOf(options.strategy).engine == StrategyTraits::EngineChoice::kMmap) {
    constexpr std::string_view kMapped = "it always maps the file";
    if (options.engine && options.engine != decision.engine) idle.Add("engine", kMapped);
    if (options.cache && options.cache != decision.cache) idle.Add("cache", kMapped);
  }
}

// Options of strategy auto alone.
void AddOfAuto(const LoaderOptions& options, const OpenDecision& decision, const HostMember& member,
               IdleOptions& idle) {
  const StrategyTraits& strategy = CompositionOf(options.strategy);
  const bool is_auto = strategy.engine == StrategyTraits::EngineChoice::kProbe;
  if (options.keep_bytes > 0) {
    if (!is_auto) idle.Add("keep_bytes", "only auto keeps the file");
    if (is_auto && decision.is_in_place) {
      idle.AddHere("keep_bytes", "the records are used in place, in the page cache");
    }
  }
  const bool maps = strategy.engine == StrategyTraits::EngineChoice::kMmap ||
                    strategy.locating == LocateMethod::kOneWalker;
  if (!options.allow_map && maps) idle.Add("allow_map", "it always maps the file");
  const bool names_cache = !options.layout_cache.empty() && options.layout_cache != "off";
  if (names_cache && strategy.locating != LocateMethod::kBest) {
    idle.Add("layout_cache", "only auto keeps layouts");
  } else if (names_cache && (!member.is_only_host || member.reader_count > 1)) {
    idle.AddHere("layout_cache", "only a job with one reader on one host keeps layouts");
  }
}

void AddOfWalk(const LoaderOptions& options, const OpenDecision& decision, const HostMember& member,
               IdleOptions& idle) {
  if (options.joint_walk != JointWalkUse::kOn) return;
  const bool is_only_reader =
      member.is_only_host && member.reader_count == 1 && options.num_shards == 1;
  if (CompositionOf(options.strategy).locating != LocateMethod::kBest &&
      decision.locating != LocateMethod::kScan) {
    idle.Add("joint_walk", "it does not walk over the pages");
  } else if (decision.locating != LocateMethod::kScan) {
    idle.AddHere("joint_walk", "the layout is known, so no reader walks over the pages");
  } else if (decision.view_digest) {
    idle.AddHere("joint_walk", "the samples of a view may lie in any order");
  } else if (!is_only_reader || options.order != Order::kSequential || decision.is_in_place ||
             decision.cache == file::CachePolicy::kBuffered) {
    idle.AddHere("joint_walk", "it needs key order, direct reads and one reader on one host");
  }
}

void AddOfExchange(const LoaderOptions& options, const OpenDecision& decision,
                   const HostMember& member, IdleOptions& idle) {
  if (options.exchange != ExchangeUse::kOn || MayExchange(decision, options, member)) return;
  if (decision.engine == file::EngineKind::kMmap ||
      CompositionOf(options.strategy).locating == LocateMethod::kNone) {
    idle.Add("exchange", "it does not read blocks");
  } else if (CompositionOf(options.strategy).staggering == Staggering::kTokens) {
    idle.Add("exchange", "its readers take turns");
  } else if (decision.view_digest) {
    idle.AddHere("exchange", "the samples of a view may lie in any order");
  } else {
    idle.AddHere("exchange",
                 "it needs key order, blocks of at most 8 MiB, and several hosts, each with one "
                 "reader that takes no turns");
  }
}

void AddOfTurns(const LoaderOptions& options, const OpenDecision& decision,
                const HostMember& member, IdleOptions& idle) {
  if (options.stagger == 0) return;
  if (CompositionOf(options.strategy).staggering == Staggering::kNone) {
    idle.Add("stagger", "its readers take no turns; use auto or lmm-dio-prov-coal-stag");
  } else if (decision.is_in_place) {
    idle.AddHere("stagger", "the records are used in place, in the page cache");
  } else if (member.is_only_host && options.stagger >= static_cast<uint32_t>(member.reader_count)) {
    idle.AddHere(
        fmt::format("stagger {}", options.stagger),
        fmt::format("the job has {} reader(s); see readers_per_host", member.reader_count));
  }
}

}  // namespace

std::vector<std::string> IdleOptionNotes(const LoaderOptions& options, const OpenDecision& decision,
                                         const HostMember& member) {
  IdleOptions idle(options);
  if (CompositionOf(options.strategy).locating == LocateMethod::kNone) {
    AddOfBaseline(options, idle);
  }
  AddOfEngine(options, decision, idle);
  AddOfAuto(options, decision, member, idle);
  AddOfWalk(options, decision, member, idle);
  AddOfExchange(options, decision, member, idle);
  AddOfTurns(options, decision, member, idle);
  return idle.Take();
}

}  // namespace lmdbio::load
