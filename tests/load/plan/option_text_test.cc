// Goal: every option is shown with its own name and value, and ranks that differ in an option are
// told its name. Oracle: values that are set here by hand, field by field.
#include "lmdbio/load/plan/option_text.h"

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lmdbio/load/plan/option_list.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

using nlohmann::json;

struct OptionCase {
  std::string name;
  std::function<void(LoaderOptions&)> set;
  json value;
};

// One value other than the default for each option, in the order of lmdbio_options.
std::vector<OptionCase> AllCases() {
  return {
      {"database_name", [](auto& o) { o.database_name = "other"; }, "other"},
      {"global_batch_size", [](auto& o) { o.global_batch_size = 48; }, 48},
      {"max_batches", [](auto& o) { o.max_batches = 3; }, 3},
      {"order", [](auto& o) { o.order = Order::kChunked; }, "chunked"},
      {"tail", [](auto& o) { o.tail = Tail::kWrap; }, "wrap"},
      {"share", [](auto& o) { o.share = Share::kRoundRobin; }, "round-robin"},
      {"on_error", [](auto& o) { o.on_error = OnError::kSkip; }, "skip"},
      {"snapshot", [](auto& o) { o.snapshot = SnapshotMode::kPinned; }, "pinned"},
      {"seed", [](auto& o) { o.seed = ~uint64_t{0}; }, ~uint64_t{0}},
      {"block_records", [](auto& o) { o.block_records = 10; }, 10},
      {"group_batches", [](auto& o) { o.group_batches = 4; }, 4},
      {"reuse", [](auto& o) { o.reuse = 2; }, 2},
      {"epoch", [](auto& o) { o.epoch = 5; }, 5},
      {"state", [](auto& o) { o.state = "{}"; }, "{}"},
      {"num_shards", [](auto& o) { o.num_shards = 6; }, 6},
      {"shard_id", [](auto& o) { o.shard_id = 1; }, 1},
      {"memory_budget_bytes", [](auto& o) { o.memory_budget_bytes = 1 << 23; }, 1 << 23},
      {"keep_bytes", [](auto& o) { o.keep_bytes = -1; }, -1},
      {"prefetch_batches", [](auto& o) { o.prefetch_batches = 7; }, 7},
      {"allow_map", [](auto& o) { o.allow_map = false; }, false},
      {"readers_per_host", [](auto& o) { o.readers_per_host = 8; }, 8},
      {"queue_depth", [](auto& o) { o.queue_depth = 9; }, 9},
      {"block_bytes", [](auto& o) { o.block_bytes = 4096; }, 4096},
      {"strategy", [](auto& o) { o.strategy = Strategy::kLmmDio; }, "lmm-dio"},
      {"engine", [](auto& o) { o.engine = file::EngineKind::kUring; }, "uring"},
      {"placement", [](auto& o) { o.placement = "scp"; }, "scp"},
      {"shuffle", [](auto& o) { o.shuffle = Shuffle::kBlock; }, "block"},
      {"reuse_among", [](auto& o) { o.reuse_among = ReuseAmong::kHost; }, "host"},
      {"cache", [](auto& o) { o.cache = file::CachePolicy::kDirect; }, "direct"},
      {"stagger", [](auto& o) { o.stagger = 11; }, 11},
      {"huge_pages", [](auto& o) { o.huge_pages = HugePageUse::kOff; }, "off"},
      {"window_memory", [](auto& o) { o.window_memory = WindowMemoryUse::kMpi; }, "mpi"},
      {"layout_cache", [](auto& o) { o.layout_cache = "off"; }, "off"},
      {"joint_walk", [](auto& o) { o.joint_walk = JointWalkUse::kOn; }, "on"},
      {"exchange", [](auto& o) { o.exchange = ExchangeUse::kOn; }, "on"},
      {"open_files_max", [](auto& o) { o.open_files_max = 9; }, 9},
  };
}

TEST_CASE("The effective options show each option by its name", "[plan][options]") {
  const json defaults = json::parse(OptionsJson({}));
  const std::vector<OptionCase> cases = AllCases();
  REQUIRE(defaults.size() == cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(cases[i].name);
    CHECK(cases[i].name == kOptionInfos.at(i).name);
    LoaderOptions options;
    cases[i].set(options);
    json expected = defaults;
    CHECK(expected.at(cases[i].name) != cases[i].value);
    expected[cases[i].name] = cases[i].value;
    CHECK(json::parse(OptionsJson(options)) == expected);
  }
}

TEST_CASE("An option that is left to the strategy is null", "[plan][options]") {
  const json defaults = json::parse(OptionsJson({}));
  CHECK(defaults.at("engine").is_null());
  CHECK(defaults.at("cache").is_null());
  CHECK(defaults.at("tail") == "short");
  CHECK(defaults.at("global_batch_size") == 64);
  CHECK(defaults.at("allow_map") == true);
}

TEST_CASE("A rank that differs is told the option and both values", "[plan][options]") {
  const std::vector<OptionValue> first = CommonOptionValues({});
  CHECK(OptionDifference(first, CommonOptionValues({}), 1).empty());
  for (const OptionCase& one : AllCases()) {
    CAPTURE(one.name);
    LoaderOptions options;
    one.set(options);
    const std::string difference = OptionDifference(first, CommonOptionValues(options), 3);
    const bool may_differ =
        one.name == "shard_id" || one.name == "queue_depth" || one.name == "placement";
    const std::string shown =
        one.value.is_string() ? one.value.get<std::string>() : one.value.dump();
    CHECK(difference.starts_with(one.name + " is '" + shown + "' on rank 3 and '") != may_differ);
    CHECK(difference.empty() == may_differ);
  }
}

TEST_CASE("A long value is compared but not shown", "[plan][options]") {
  LoaderOptions one;
  one.state = std::string(100, 'a');
  LoaderOptions two;
  two.state = std::string(99, 'a') + 'b';
  CHECK(OptionDifference(CommonOptionValues(one), CommonOptionValues(two), 1) ==
        "state of rank 1 differs from that of rank 0");
}

TEST_CASE("The table of options names every strategy", "[plan][options]") {
  REQUIRE(kStrategyChoices.size() == kStrategies.size());
  for (const auto& choice : kStrategyChoices) {
    const Result<Strategy> parsed = ParseStrategy(choice.name);
    REQUIRE(parsed.has_value());
    CHECK(*parsed == choice.value);
  }
}

}  // namespace
}  // namespace lmdbio::load
