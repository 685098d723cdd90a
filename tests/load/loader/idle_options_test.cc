// Goal: every option that has no effect with a strategy is noted, and no other.
// Oracle: a table by hand, of the strategies that note each option.
#include "lmdbio/load/loader/idle_options.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lmdbio/load/plan/strategy.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

using Strategies = std::vector<Strategy>;

struct IdleCase {
  std::string option;
  std::function<void(LoaderOptions&)> set;
  Strategies noted;
};

const Strategies kBaseline = {Strategy::kLmdb};
const Strategies kMapping = {Strategy::kLmdb, Strategy::kLmm, Strategy::kLmmDm};

Strategies AllBut(const Strategies& others) {
  Strategies all;
  for (const StrategyTraits& row : kStrategies) {
    if (std::find(others.begin(), others.end(), row.strategy) == others.end()) {
      all.push_back(row.strategy);
    }
  }
  return all;
}

std::vector<IdleCase> AllCases() {
  Strategies walked = kMapping;
  walked.push_back(Strategy::kLmmDio);
  return {
      {"memory_budget_bytes", [](auto& o) { o.memory_budget_bytes = 1 << 23; }, kBaseline},
      {"prefetch_batches", [](auto& o) { o.prefetch_batches = 7; }, kBaseline},
      {"readers_per_host", [](auto& o) { o.readers_per_host = 2; }, kBaseline},
      {"queue_depth", [](auto& o) { o.queue_depth = 9; }, kBaseline},
      {"block_bytes", [](auto& o) { o.block_bytes = 4096; }, kBaseline},
      {"huge_pages", [](auto& o) { o.huge_pages = HugePageUse::kOff; }, kBaseline},
      {"window_memory", [](auto& o) { o.window_memory = WindowMemoryUse::kMpi; }, kBaseline},
      {"on_error", [](auto& o) { o.on_error = OnError::kSkip; }, kBaseline},
      {"snapshot", [](auto& o) { o.snapshot = SnapshotMode::kPinned; }, kBaseline},
      {"engine", [](auto& o) { o.engine = file::EngineKind::kUring; }, kMapping},
      {"engine", [](auto& o) { o.engine = file::EngineKind::kMmap; }, {}},
      {"cache", [](auto& o) { o.cache = file::CachePolicy::kDirect; }, kMapping},
      {"cache", [](auto& o) { o.cache = file::CachePolicy::kBuffered; }, {}},
      {"allow_map", [](auto& o) { o.allow_map = false; }, walked},
      {"keep_bytes", [](auto& o) { o.keep_bytes = 1 << 30; }, AllBut({Strategy::kAuto})},
      {"keep_bytes", [](auto& o) { o.keep_bytes = -1; }, {}},
      {"layout_cache", [](auto& o) { o.layout_cache = "/a"; }, AllBut({Strategy::kAuto})},
      {"layout_cache", [](auto& o) { o.layout_cache = "off"; }, {}},
      {"joint_walk", [](auto& o) { o.joint_walk = JointWalkUse::kOn; },
       AllBut({Strategy::kAuto, Strategy::kScan})},
      {"joint_walk", [](auto& o) { o.joint_walk = JointWalkUse::kOff; }, {}},
      {"exchange",
       [](auto& o) { o.exchange = ExchangeUse::kOn; },
       {Strategy::kLmdb, Strategy::kLmm, Strategy::kLmmDm, Strategy::kLmmDioProvCoalStag}},
      {"exchange", [](auto& o) { o.exchange = ExchangeUse::kOff; }, {}},
      {"stagger", [](auto& o) { o.stagger = 1; },
       AllBut({Strategy::kAuto, Strategy::kLmmDioProvCoalStag})},
  };
}

// The decision of rank 0 on a file without provenance that is not cached.
OpenDecision DecisionOn(const LoaderOptions& options) {
  const StrategyTraits& strategy = CompositionOf(options.strategy);
  const bool maps = strategy.engine == StrategyTraits::EngineChoice::kMmap;
  const bool is_pread = strategy.engine == StrategyTraits::EngineChoice::kPread;
  OpenDecision decision;
  decision.locating =
      strategy.locating == LocateMethod::kBest ? LocateMethod::kScan : strategy.locating;
  decision.engine = maps ? file::EngineKind::kMmap : file::EngineKind::kUring;
  decision.cache = maps || is_pread ? file::CachePolicy::kBuffered : file::CachePolicy::kDirect;
  if (!maps && options.engine) decision.engine = *options.engine;
  if (!maps && options.cache) decision.cache = *options.cache;
  return decision;
}

TEST_CASE("Each option is noted with the strategies that ignore it", "[loader][notes]") {
  for (const IdleCase& one : AllCases()) {
    for (const StrategyTraits& row : kStrategies) {
      CAPTURE(one.option, row.name);
      LoaderOptions options;
      options.strategy = row.strategy;
      one.set(options);
      HostMember member;
      member.reader_count = one.option == "stagger" ? 2 : 1;
      member.is_only_host = one.option != "exchange";
      const std::vector<std::string> notes = IdleOptionNotes(options, DecisionOn(options), member);
      const bool is_noted =
          std::find(one.noted.begin(), one.noted.end(), row.strategy) != one.noted.end();
      REQUIRE(notes.size() == (is_noted ? 1 : 0));
      if (is_noted) {
        CHECK(notes[0].starts_with(one.option + " has no effect with strategy " +
                                   std::string(row.name) + ": "));
      }
    }
  }
}

TEST_CASE("Default options are never noted", "[loader][notes]") {
  for (const StrategyTraits& row : kStrategies) {
    LoaderOptions options;
    options.strategy = row.strategy;
    CHECK(IdleOptionNotes(options, DecisionOn(options), {}).empty());
  }
}

TEST_CASE("An option of auto is noted if the job cannot use it", "[loader][notes]") {
  LoaderOptions options;
  HostMember member;
  OpenDecision decision = DecisionOn(options);
  std::string option;
  SECTION("a layout is known") {
    options.joint_walk = JointWalkUse::kOn;
    decision.locating = LocateMethod::kProvenance;
    option = "joint_walk";
  }
  SECTION("a walk is shared") {
    options.joint_walk = JointWalkUse::kOn;
    member.is_only_host = false;
    option = "joint_walk";
  }
  SECTION("there is nobody to exchange with") {
    options.exchange = ExchangeUse::kOn;
    option = "exchange";
  }
  SECTION("several readers of a host would need the same chunks") {
    options.exchange = ExchangeUse::kOn;
    options.readers_per_host = 2;
    member.is_only_host = false;
    option = "exchange";
  }
  SECTION("a reader would wait for its turn") {
    options.exchange = ExchangeUse::kOn;
    options.stagger = 1;
    member.is_only_host = false;
    option = "exchange";
  }
  SECTION("chunks would be larger than the memory for them") {
    options.exchange = ExchangeUse::kOn;
    options.block_bytes = 16 << 20;
    member.is_only_host = false;
    option = "exchange";
  }
  SECTION("chunks of a shuffled stream are needed once for each record") {
    options.exchange = ExchangeUse::kOn;
    options.order = Order::kShuffle;
    member.is_only_host = false;
    option = "exchange";
  }
  SECTION("several readers") {
    options.layout_cache = "/a";
    member.reader_count = 2;
    option = "layout_cache";
  }
  SECTION("as many tokens as readers") {
    options.stagger = 2;
    member.reader_count = 2;
    option = "stagger 2";
  }
  SECTION("turns, in place") {
    options.stagger = 1;
    member.reader_count = 2;
    decision.is_in_place = true;
    option = "stagger";
  }
  SECTION("a file cache, in place") {
    options.keep_bytes = 1 << 30;
    decision.is_in_place = true;
    option = "keep_bytes";
  }
  const std::vector<std::string> notes = IdleOptionNotes(options, decision, member);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(option + " has no effect: "));
}

}  // namespace
}  // namespace lmdbio::load
