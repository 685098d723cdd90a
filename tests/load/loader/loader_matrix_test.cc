// Goal: every kind of database gives the same sequence with all options: the sequence of liblmdb,
// or for data version 3 the dump of LMDB 1.0.
#include <algorithm>
#include <string>
#include <vector>

#include "lmdbio/load/loader/open_decision.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/load/loader/databases.h"
#include "tests/load/loader/matrix_share.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::Order;
using load::Share;
using load::Strategy;
using load::Tail;

constexpr file::EngineKind kEngines[] = {file::EngineKind::kMmap, file::EngineKind::kPread,
                                         file::EngineKind::kUring};
constexpr file::CachePolicy kCaches[] = {file::CachePolicy::kBuffered, file::CachePolicy::kDirect,
                                         file::CachePolicy::kMixed};
constexpr Tail kTails[] = {Tail::kWrap, Tail::kShort, Tail::kDrop};
constexpr Share kShares[] = {Share::kBlock, Share::kRoundRobin, Share::kFill};

struct MatrixTrial {
  ranks::ThreadRanks ranks;
  LoaderOptions options;

  std::string Describe() const {
    std::string text(load::CompositionOf(options.strategy).name);
    const auto add = [&](const char* name, uint64_t value) {
      text += std::string(", ") + name + " " + std::to_string(value);
    };
    add("ranks", static_cast<uint64_t>(ranks.rank_count));
    add("per host", static_cast<uint64_t>(ranks.ranks_per_host));
    add("readers", options.readers_per_host);
    add("batch", options.global_batch_size);
    add("batches", options.max_batches);
    add("order", static_cast<uint64_t>(options.order));
    add("shuffle", static_cast<uint64_t>(options.shuffle));
    add("seed", options.seed);
    add("blocks of", options.block_records);
    add("groups of", options.group_batches);
    add("reuse", options.reuse);
    add("among", static_cast<uint64_t>(options.reuse_among));
    add("first epoch", options.epoch);
    add("share", static_cast<uint64_t>(options.share));
    add("tail", static_cast<uint64_t>(options.tail));
    add("budget", options.memory_budget_bytes);
    add("block", options.block_bytes);
    add("depth", options.queue_depth);
    add("map", options.allow_map ? 1 : 0);
    add("exchange", static_cast<uint64_t>(options.exchange));
    if (options.prefetch_batches > 0) add("prefetch", options.prefetch_batches);
    if (options.keep_bytes != 0) text += ", keep " + std::to_string(options.keep_bytes);
    if (options.engine) text += std::string(", ") + file::EngineKindName(*options.engine);
    if (options.cache) add("cache", static_cast<uint64_t>(*options.cache));
    return text;
  }
};

// Compares the records that `trial` delivers with `database`. Returns the first difference, or "".
std::string WrongWith(const ServedDatabase& database, MatrixTrial trial) {
  trial.options.database_name = database.database_name;
  const Delivered got = Deliver(trial.ranks, database.data_file, trial.options);
  for (const auto& error : got.errors) {
    if (error) return error->message();
  }
  if (got.twice_count > 0) return "records come twice";
  if (got.foreign_count > 0) return "records come to another rank than their owner";
  if (got.skipped_count > 0) return "records are skipped";
  if (got.records != ExpectedOf(database.records, trial.options)) return "another sequence";
  return "";
}

TEST_CASE("No combination of options shows in what is delivered", "[loader][matrix]") {
  ServedDatabases databases;
  databases.AddFixture("boundaries");  // 70 records, of no bytes to eight pages
  const uint64_t record_count = databases.all()[0].records.size();
  MatrixShare matrix(3);
  for (const auto& row : load::kStrategies) {
    for (const Share share : kShares) {
      for (const Tail tail : kTails) {
        for (const file::EngineKind engine : kEngines) {
          for (const file::CachePolicy cache : kCaches) {
            if (matrix.LeavesOut()) continue;
            MatrixTrial trial{{.rank_count = 3, .ranks_per_host = 2}, {}};
            trial.options.strategy = row.strategy;
            trial.options.share = share;
            trial.options.tail = tail;
            trial.options.engine = engine;
            trial.options.cache = cache;
            trial.options.readers_per_host = 2;
            trial.options.global_batch_size = record_count / 3 + 1;
            trial.options.max_batches = 8;
            INFO(trial.Describe());
            REQUIRE(WrongWith(databases.all()[0], trial) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("Any number of ranks, readers and hosts delivers the same", "[loader][matrix]") {
  ServedDatabases databases;
  databases.AddFixture("page-512-dupsort");
  for (const int rank_count : {1, 2, 3, 5, 8}) {
    for (const int ranks_per_host : {1, 2, 3, 64}) {
      for (const uint32_t readers : {1U, 2U, 3U}) {
        MatrixTrial trial{{rank_count, ranks_per_host}, {}};
        trial.options.strategy = readers == 2 ? Strategy::kLmmDioProvCoal : Strategy::kScan;
        trial.options.share = ranks_per_host == 2 ? Share::kRoundRobin : Share::kBlock;
        trial.options.readers_per_host = readers;
        trial.options.global_batch_size = 100;
        trial.options.max_batches = 6;
        INFO(trial.Describe());
        REQUIRE(WrongWith(databases.all()[0], trial) == "");
      }
    }
  }
}

TEST_CASE("Chunked order is the same for all strategies, ranks and hosts", "[loader][matrix]") {
  ServedDatabases databases;
  databases.AddFixture("boundaries");
  MatrixShare matrix(3);
  for (const auto& row : load::kStrategies) {
    for (const Tail tail : kTails) {
      for (const int rank_count : {1, 2, 5}) {
        for (const uint64_t group_batches : {1U, 3U, 4U, 100U}) {
          if (matrix.LeavesOut()) continue;
          MatrixTrial trial{{rank_count, 2}, {}};
          trial.options.strategy = row.strategy;
          trial.options.order = Order::kChunked;
          trial.options.group_batches = group_batches;
          trial.options.tail = tail;
          trial.options.global_batch_size = 8;
          trial.options.max_batches = 20;
          INFO(trial.Describe());
          REQUIRE(WrongWith(databases.all()[0], trial) == "");
        }
      }
    }
  }
}

TEST_CASE("Records are the same with an exchange between hosts", "[loader][matrix][exchange]") {
  ServedDatabases databases;
  databases.AddFixture("boundaries");
  databases.AddFixture("page-512-dupsort");
  for (const ServedDatabase& database : databases.all()) {
    for (const Strategy strategy :
         {Strategy::kAuto, Strategy::kScan, Strategy::kLmmDio, Strategy::kLmmDioProvCoal}) {
      for (const int rank_count : {2, 3, 8}) {
        for (const int ranks_per_host : {1, 2}) {
          for (const uint64_t block_bytes : {uint64_t{4096}, uint64_t{20'480}, uint64_t{1} << 20}) {
            MatrixTrial trial{{rank_count, ranks_per_host}, {}};
            trial.options.strategy = strategy;
            trial.options.share = rank_count == 3 ? Share::kRoundRobin : Share::kBlock;
            trial.options.block_bytes = block_bytes;
            trial.options.global_batch_size = 16;
            trial.options.max_batches = 12;
            trial.options.exchange = load::ExchangeUse::kOn;
            INFO(database.name << ": " << trial.Describe());
            REQUIRE(WrongWith(database, trial) == "");
          }
        }
      }
    }
  }
}

template <typename T, size_t kCount>
T AnyOf(Random& random, const T (&choices)[kCount]) {
  return choices[random.Below(kCount)];
}

uint64_t LargestValueBytes(const ServedDatabase& database) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : database.records) bytes = std::max<uint64_t>(bytes, value.size());
  return bytes;
}

void SetAnyOrder(Random& random, LoaderOptions& options) {
  if (random.Below(3) == 0) return;
  options.order = AnyOf(random, {Order::kSequential, Order::kChunked, Order::kShuffle});
  options.shuffle = AnyOf(random, {load::Shuffle::kGlobal, load::Shuffle::kBlock});
  options.seed = random.Below(100);
  options.block_records = AnyOf(random, {uint64_t{1}, uint64_t{3}, uint64_t{50}});
  if (options.order == Order::kShuffle) {
    options.strategy = AnyOf(random, {Strategy::kAuto, Strategy::kScan, Strategy::kLmmDioProv,
                                      Strategy::kLmmDioProvCoal, Strategy::kLmmDioProvCoalStag});
    options.epoch = AnyOf(random, {uint64_t{0}, uint64_t{5}});
  }
  if (options.strategy != Strategy::kLmdb && random.Below(3) == 0) {
    options.reuse = AnyOf(random, {uint64_t{2}, uint64_t{3}});
    options.reuse_among = AnyOf(random, {load::ReuseAmong::kRank, load::ReuseAmong::kHost});
  }
  const bool is_global =
      options.order == Order::kShuffle && options.shuffle == load::Shuffle::kGlobal;
  if (options.reuse == 1 && (options.order == Order::kSequential || is_global)) return;
  options.share = Share::kBlock;
  options.group_batches = AnyOf(random, {uint64_t{1}, uint64_t{2}, uint64_t{5}, uint64_t{40}});
}

MatrixTrial AnyTrial(Random& random, const ServedDatabase& database) {
  constexpr uint64_t kPositionsMax = 6000;
  const uint64_t record_count = database.records.size();
  MatrixTrial trial;
  trial.ranks.rank_count = AnyOf(random, {1, 2, 3, 5, 8});
  trial.ranks.ranks_per_host = AnyOf(random, {1, 2, 3, 64});
  LoaderOptions& options = trial.options;
  options.strategy = load::kStrategies[random.Below(load::kStrategies.size())].strategy;
  options.share = AnyOf(random, kShares);
  SetAnyOrder(random, options);
  options.tail = AnyOf(random, kTails);
  options.readers_per_host = static_cast<uint32_t>(random.Between(1, 3));
  options.allow_map = random.Below(2) == 0;
  if (random.Below(2) == 0) options.keep_bytes = random.Below(2) == 0 ? -1 : int64_t{1} << 30;
  options.prefetch_batches = random.Below(2) * random.Below(20);
  if (random.Below(2) == 0) options.engine = AnyOf(random, kEngines);
  if (random.Below(2) == 0) options.cache = AnyOf(random, kCaches);
  options.queue_depth = AnyOf(random, {1U, 3U, 32U});
  options.block_bytes = AnyOf(random, {uint64_t{4096}, uint64_t{20'480}, uint64_t{1} << 20});
  const uint64_t sizes[] = {1, 7, record_count, 3 * record_count + 1, random.Between(1, 300)};
  options.global_batch_size = std::min(kPositionsMax, AnyOf(random, sizes));
  if (options.tail == Tail::kDrop)
    options.global_batch_size = std::min(options.global_batch_size, record_count);
  const uint64_t two_epochs = 2 * record_count / options.global_batch_size + 2;
  options.max_batches = std::clamp<uint64_t>(kPositionsMax / options.global_batch_size, 1,
                                             std::min<uint64_t>(two_epochs, 90));
  // A batch fits into the budget, a batch group does not.
  if (options.global_batch_size <= 7 && LargestValueBytes(database) < 40'000 &&
      options.reuse == 1 && options.group_batches == 0) {
    options.memory_budget_bytes = 1 << 20;
  }
  if (random.Below(2) == 0) options.exchange = load::ExchangeUse::kOn;
  return trial;
}

TEST_CASE("Databases of every kind are delivered with options of any kind", "[loader][matrix]") {
  ServedDatabases databases;
  for (const char* name :
       {"one-record", "random-order", "key-sizes", "updated", "compacted", "single-file",
        "writemap", "dupsort-small", "dupsort-promoted", "dupsort-long-values",
        "dupsort-empty-values", "dupfixed-main", "reverse-dup", "page-512-plain",
        "page-512-dupsort", "page-512-single-value-trees", "page-16384-plain",
        "page-16384-dupsort"}) {
    databases.AddFixture(name);
  }
  databases.AddFixture("named", "plain");
  databases.AddFixture("named", "dupfixed");
  databases.AddFixture("page-512-dupfixed", "items-of-4");
  databases.AddFixture("integer-dup", "items-of-8");
  databases.AddFixture("integer-key", "keys-of-4");
  MatrixShare matrix(3);
  for (size_t i = 0; i < databases.all().size(); ++i) {
    const ServedDatabase& database = databases.all()[i];
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      if (matrix.LeavesOut()) continue;
      Random random(1000 * i + seed);
      const MatrixTrial trial = AnyTrial(random, database);
      INFO(database.name << ", seed " << seed << ": " << trial.Describe());
      CHECK(WrongWith(database, trial) == "");
    }
  }
}

TEST_CASE("Files of data version 3 are delivered too, but by liblmdb", "[loader][matrix]") {
  ServedDatabases databases;
  for (const std::string& name : V3FixtureNames()) databases.AddVersion3(name);
  REQUIRE(databases.all().size() > V3FixtureNames().size());
  MatrixShare matrix(3);
  for (size_t i = 0; i < databases.all().size(); ++i) {
    const ServedDatabase& database = databases.all()[i];
    Random random(i);
    for (const auto& row : load::kStrategies) {
      if (matrix.LeavesOut()) continue;
      MatrixTrial trial = AnyTrial(random, database);
      trial.options.strategy = row.strategy;
      // A strategy that cannot shuffle reads in key order.
      if (!load::CheckOptions(trial.options)) {
        trial.options.order = Order::kSequential;
        trial.options.epoch = 0;
        trial.options.reuse = 1;
      }
      if (row.strategy != Strategy::kLmdb) {
        INFO(database.name << ": " << trial.Describe());
        CHECK(WrongWith(database, trial) == "");
        continue;
      }
      const std::string why = WrongWith(database, trial);
      INFO(why);
      CHECK(why.find(database.data_file) != std::string::npos);
      CHECK(why.find("data version 3") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lmdbio::test
