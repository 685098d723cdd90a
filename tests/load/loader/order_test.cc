// Goal: a shuffled stream has every record once in an epoch, with any readers, and a saved stream
// continues at its position.
// Oracle: liblmdb's serial pass, in the order that Schedule returns record by record.
#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/open_decision.h"
#include "tests/load/loader/databases.h"
#include "tests/load/loader/matrix_share.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::Order;
using load::ReuseAmong;
using load::Share;
using load::Shuffle;
using load::Strategy;
using load::Tail;

// A database of `record_count` small records. In a small database every tenth record has an
// overflow run.
std::filesystem::path MakeRecords(const TempDir& dir, uint64_t record_count) {
  const std::filesystem::path folder = dir.path() / fmt::format("n{}", record_count);
  std::filesystem::create_directory(folder);
  TinyDb db(folder);
  Random random(record_count);
  const bool is_large = record_count > 10'000;
  for (uint64_t i = 0; i < record_count; ++i) {
    const uint64_t bytes = !is_large && i % 10 == 0 ? 5000 : random.Between(0, 40);
    db.Put(fmt::format("{:08}", i), random.BytesOf(bytes));
  }
  db.Commit();
  return db.data_file();
}

// Returns the first fault of the stream, or "" if each record is at its position.
std::string WrongWith(ranks::ThreadRanks ranks, const std::filesystem::path& data_file,
                      const std::map<uint64_t, KeyValue>& expected, const LoaderOptions& options) {
  const Delivered got = Deliver(ranks, data_file, options);
  for (const auto& error : got.errors) {
    if (error) return error->message();
  }
  if (got.twice_count > 0) return "records come twice";
  if (got.foreign_count > 0) return "records come to another rank than their owner";
  return got.records == expected ? "" : "another sequence";
}

TEST_CASE("Each record comes once an epoch, at every number of ranks", "[loader][order]") {
  const TempDir dir;
  MatrixShare matrix(4);  // of the largest number of records
  for (const uint64_t n : {1U, 2U, 97U, 1000U, 1797U, 65'536U}) {
    const auto data_file = MakeRecords(dir, n);
    const auto records = LmdbRecords(data_file, "");
    REQUIRE(records.size() == n);
    for (const Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kBlock}) {
      LoaderOptions options;
      options.order = Order::kShuffle;
      options.shuffle = shuffle;
      options.seed = n;
      options.tail = Tail::kShort;
      options.global_batch_size = n > 10'000 ? 4096 : 24;
      options.block_records = 10;
      options.group_batches = shuffle == Shuffle::kBlock ? 7 : 1;
      options.allow_map = false;
      const uint64_t an_epoch = (n + options.global_batch_size - 1) / options.global_batch_size;
      options.max_batches = n > 10'000 ? an_epoch : 2 * an_epoch;
      const auto expected = ExpectedOf(records, options);
      // The oracle's epoch has every record once.
      std::vector<KeyValue> sorted;
      for (const auto& [position, record] : expected) {
        if (position < n) sorted.push_back(record);
      }
      std::sort(sorted.begin(), sorted.end());
      REQUIRE(sorted == records);
      int variant = 0;
      for (const int rank_count : {1, 2, 3, 5, 8}) {
        for (const int ranks_per_host : {64, 2}) {
          // Engines, depths and strategies vary.
          ++variant;
          if (n > 10'000 && matrix.LeavesOut()) continue;
          options.strategy = variant % 2 == 0 ? Strategy::kScan : Strategy::kAuto;
          options.queue_depth = variant % 3 == 0 ? 1 : 32;
          options.engine = variant % 4 == 0   ? file::EngineKind::kMmap
                           : variant % 4 == 1 ? file::EngineKind::kPread
                                              : file::EngineKind::kUring;
          options.readers_per_host = variant % 5 == 0 ? 2 : 1;
          // Little memory gives many slots, and scattered slots of all sizes.
          options.memory_budget_bytes = variant % 3 == 1 ? 4 << 20 : 256 << 20;
          // The file cache keeps scattered slots, all slots, or none.
          options.keep_bytes = 0;
          if (variant % 4 == 2) options.keep_bytes = 1 << 30;
          if (variant % 4 == 3) options.keep_bytes = -1;
          CAPTURE(n, static_cast<int>(shuffle), rank_count, ranks_per_host, variant);
          REQUIRE(WrongWith({rank_count, ranks_per_host}, data_file, expected, options) == "");
        }
      }
    }
  }
}

// All orders that can be saved.
LoaderOptions AnyOrder(Random& random) {
  LoaderOptions options;
  options.order = static_cast<Order>(random.Below(3));
  options.shuffle = static_cast<Shuffle>(random.Below(2));
  options.seed = random.Below(1000);
  options.tail = static_cast<Tail>(random.Below(3));
  options.global_batch_size = random.Between(1, 40);
  options.block_records = random.Between(1, 20);
  options.reuse = random.Below(4) == 0 ? random.Between(2, 4) : 1;
  const bool deals = options.order == Order::kChunked || options.reuse > 1 ||
                     (options.order == Order::kShuffle && options.shuffle == Shuffle::kBlock);
  options.group_batches = deals ? random.Between(1, 6) : 1;
  options.strategy = random.Below(2) == 0 ? Strategy::kAuto : Strategy::kScan;
  const Strategy in_order[] = {Strategy::kLmdb, Strategy::kLmm, Strategy::kLmmDm,
                               Strategy::kLmmDio};
  if (options.order != Order::kShuffle && options.reuse == 1 && random.Below(2) == 0) {
    options.strategy = in_order[random.Below(std::size(in_order))];
  }
  return options;
}

TEST_CASE("A stream that was cut anywhere goes on at any number of ranks", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  const auto records = LmdbRecords(data_file, "");
  Random random(20);
  MatrixShare matrix(3);
  for (int cut = 0; cut < 200; ++cut) {
    if (matrix.LeavesOut()) continue;
    const LoaderOptions options = AnyOrder(random);
    const uint64_t total =
        random.Between(2, 3 * (97 / options.global_batch_size + 2) * options.reuse);
    LoaderOptions whole = options;
    whole.max_batches = total;
    const auto expected = ExpectedOf(records, whole);
    CAPTURE(cut, static_cast<int>(options.order), static_cast<int>(options.shuffle),
            static_cast<int>(options.tail), options.global_batch_size, options.reuse,
            options.group_batches, total);
    std::map<uint64_t, KeyValue> joined;
    std::string state;
    // Two cuts make three parts.
    uint64_t cuts[] = {random.Below(total) + 1, random.Below(total) + 1, total};
    std::sort(std::begin(cuts), std::end(cuts));
    for (const uint64_t end : cuts) {
      LoaderOptions part = options;
      part.max_batches = end;
      part.state = state;
      part.readers_per_host = static_cast<uint32_t>(random.Between(1, 2));
      const ranks::ThreadRanks ranks{static_cast<int>(random.Between(1, 5)),
                                     static_cast<int>(random.Between(1, 3))};
      Delivered got = Deliver(ranks, data_file, part);
      for (const auto& error : got.errors) {
        INFO((error ? error->message() : ""));
        REQUIRE_FALSE(error.has_value());
      }
      REQUIRE(got.foreign_count == 0);
      const size_t before = joined.size();
      joined.insert(got.records.begin(), got.records.end());
      REQUIRE(joined.size() == before + got.records.size());
      state = got.state;
    }
    REQUIRE(joined == expected);
  }
}

TEST_CASE("A shuffled stream goes on with batches of another size", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.tail = Tail::kWrap;
  options.seed = 3;
  options.global_batch_size = 10;
  options.max_batches = 7;
  Delivered first = Deliver({2, 64}, data_file, options);
  options.state = first.state;
  options.global_batch_size = 15;
  options.max_batches = 20;
  Delivered second = Deliver({3, 64}, data_file, options);
  REQUIRE_FALSE(second.errors[0].has_value());
  auto joined = first.records;
  joined.insert(second.records.begin(), second.records.end());
  LoaderOptions whole;
  whole.order = Order::kShuffle;
  whole.tail = Tail::kWrap;
  whole.seed = 3;
  whole.global_batch_size = 5;
  whole.max_batches = (70 + 13 * 15) / 5;
  CHECK(joined == Expected(data_file, whole));
}

TEST_CASE("Reused records come so often, and an epoch is so long", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  for (const ReuseAmong among : {ReuseAmong::kRank, ReuseAmong::kHost}) {
    for (const Order order : {Order::kSequential, Order::kChunked, Order::kShuffle}) {
      LoaderOptions options;
      options.order = order;
      options.tail = Tail::kShort;
      options.global_batch_size = 10;
      options.block_records = 7;
      options.group_batches = 3;
      options.reuse = 4;
      options.reuse_among = among;
      options.max_batches = 40;
      const auto expected = Expected(data_file, options);
      REQUIRE(expected.size() == 4 * 97);
      std::map<std::string, int> seen;
      for (const auto& [position, record] : expected) ++seen[record.first];
      for (const auto& [key, count] : seen) REQUIRE(count == 4);
      CAPTURE(static_cast<int>(among), static_cast<int>(order));
      CHECK(WrongWith({1, 64}, data_file, expected, options) == "");
      CHECK(WrongWith({4, 64}, data_file, expected, options) == "");
      CHECK(WrongWith({5, 2}, data_file, expected, options) == "");
    }
  }
}

TEST_CASE("Ends of epochs are counted", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  const auto counters_of = [&](Tail tail, uint64_t batches, uint64_t reuse) {
    LoaderOptions options;
    options.global_batch_size = 10;
    options.tail = tail;
    options.reuse = reuse;
    options.group_batches = 3;
    options.max_batches = batches;
    return Deliver({3, 64}, data_file, options).counters;
  };
  const auto drop = counters_of(Tail::kDrop, 18, 1);
  CHECK(drop.epoch_count == 2);
  CHECK(drop.dropped_count == 14);
  CHECK(drop.wrapped_count == 0);
  const auto wrap = counters_of(Tail::kWrap, 20, 1);
  CHECK(wrap.epoch_count == 2);
  CHECK(wrap.wrapped_count == 3 + 6);
  CHECK(wrap.dropped_count == 0);
  const auto tail_short = counters_of(Tail::kShort, 20, 1);
  CHECK(tail_short.epoch_count == 2);
  CHECK(tail_short.wrapped_count + tail_short.dropped_count == 0);
  CHECK(counters_of(Tail::kDrop, 18, 2).dropped_count == 14);
  CHECK(counters_of(Tail::kDrop, 18, 2).epoch_count == 1);
}

TEST_CASE("Shards together are one job", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 1000);
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.global_batch_size = 50;
  options.max_batches = 30;
  const auto expected = Expected(data_file, options);
  for (const int shards : {1, 3, 7}) {
    std::map<uint64_t, KeyValue> joined;
    for (int shard = 0; shard < shards; ++shard) {
      LoaderOptions mine = options;
      mine.num_shards = shards;
      mine.shard_id = shard;
      const Delivered got = Deliver({2, 64}, data_file, mine);
      REQUIRE_FALSE(got.errors[0].has_value());
      CHECK(got.foreign_count == 0);
      const size_t before = joined.size();
      joined.insert(got.records.begin(), got.records.end());
      CHECK(joined.size() == before + got.records.size());
    }
    CHECK(joined == expected);
  }
  options.num_shards = 2;
  options.shard_id = 2;
  const Delivered got = Deliver({1, 64}, data_file, options);
  REQUIRE(got.errors[0].has_value());
  CHECK_THAT(got.errors[0]->message(),
             ContainsSubstring("shard_id 2 is out of range for num_shards 2"));
}

// Runs a training loop on each rank. Returns the first fault, or "".
template <typename Trainer>
std::string OnRanks(int rank_count, const std::filesystem::path& data_file,
                    const LoaderOptions& options, Trainer trainer) {
  std::mutex mutex;
  std::string wrong;
  ranks::RunAsThreads({rank_count, 2}, [&](ranks::Group& group) {
    auto loader = load::Loader::Open(group, data_file.string(), options);
    std::string why = loader ? trainer(**loader) : loader.error().message();
    const std::lock_guard lock(mutex);
    if (wrong.empty()) wrong = std::move(why);
  });
  return wrong;
}

// Returns the fault of the next batch's first position, or "".
std::string NextIs(load::Loader& loader, uint64_t epoch, uint64_t position) {
  const auto found = loader.Next();
  if (!found) return found.error().message();
  if (!*found) return "the stream ends";
  const load::Batch& batch = loader.batch();
  if (batch.epoch() == epoch && batch.first_position() == position) return "";
  return fmt::format("epoch {}, position {} instead of {}, {}", batch.epoch(),
                     batch.first_position(), epoch, position);
}

TEST_CASE("SetEpoch goes anywhere, and costs nothing where the stream is", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.tail = Tail::kShort;
  options.global_batch_size = 40;
  for (const int rank_count : {1, 4}) {
    const std::string wrong = OnRanks(rank_count, data_file, options, [](load::Loader& loader) {
      std::string why;
      const auto check = [&](std::string what) {
        if (why.empty()) why = std::move(what);
      };
      const auto go = [&](uint64_t epoch) {
        const Status went = loader.SetEpoch(epoch);
        if (!went) check(went.error().message());
      };
      go(0);
      for (const uint64_t position : {0, 40, 80}) check(NextIs(loader, 0, position));
      const std::string before = loader.Save();
      go(1);
      if (loader.Save() != before) check("the stream was moved to where it is");
      check(NextIs(loader, 1, 97));
      go(7);
      check(NextIs(loader, 7, 7 * 97));
      check(NextIs(loader, 7, 7 * 97 + 40));
      const std::string state = loader.Save();
      go(2);
      check(NextIs(loader, 2, 2 * 97));
      const Status restored = loader.Restore(state);
      if (!restored) check(restored.error().message());
      check(NextIs(loader, 7, 7 * 97 + 80));
      if (loader.counters().batch_count != 8) check("batches are forgotten");
      // The call is refused, and the stream keeps its position.
      const Status refused = loader.Restore("{}");
      if (refused || refused.error().code() != ErrorCode::kInvalidArgument) check("{} is a state");
      if (loader.SetEpoch(~uint64_t{0})) check("there is no such epoch");
      check(NextIs(loader, 8, 8 * 97));
      return why;
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("States of ranks must be the same", "[loader][order]") {
  const TempDir dir;
  const auto data_file = MakeRecords(dir, 97);
  LoaderOptions options;
  options.global_batch_size = 10;
  std::mutex mutex;
  std::vector<std::string> messages;
  ranks::RunAsThreads({3, 64}, [&](ranks::Group& group) {
    auto loader = load::Loader::Open(group, data_file.string(), options);
    if (group.rank() == 1) (void)(*loader)->Next();
    const Status set = (*loader)->SetEpoch(3);
    const std::lock_guard lock(mutex);
    messages.push_back(set ? "" : set.error().message());
  });
  for (const std::string& message : messages) {
    CHECK_THAT(message, ContainsSubstring("rank 1 continues at another position than rank 0"));
  }
}

TEST_CASE("A state of another dataset is refused", "[loader][order]") {
  const TempDir dir;
  const auto one = MakeRecords(dir, 97);
  const auto other = MakeRecords(dir, 1000);
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.max_batches = 1;
  options.state = Deliver({1, 64}, one, options).state;
  options.max_batches = 2;
  const Delivered got = Deliver({2, 64}, other, options);
  for (const auto& error : got.errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::kStale);
    CHECK_THAT(error->message(), ContainsSubstring("record count 97, but the loader has 1000"));
  }
  options.seed = 1;
  const Delivered another_order = Deliver({1, 64}, one, options);
  REQUIRE(another_order.errors[0].has_value());
  CHECK(another_order.errors[0]->code() == ErrorCode::kInvalidArgument);
  CHECK_THAT(another_order.errors[0]->message(), ContainsSubstring("seed 0, but the loader has 1"));
}

TEST_CASE("Orders that a strategy cannot serve are refused", "[loader][order]") {
  const auto refusal = [](auto change) {
    LoaderOptions options;
    options.order = Order::kShuffle;
    change(options);
    const Status checked = load::CheckOptions(options);
    return checked ? "" : checked.error().message();
  };
  for (const Strategy strategy :
       {Strategy::kLmdb, Strategy::kLmm, Strategy::kLmmDm, Strategy::kLmmDio}) {
    const auto name = std::string(load::CompositionOf(strategy).name);
    CHECK_THAT(refusal([&](auto& o) { o.strategy = strategy; }),
               ContainsSubstring("strategy " + name));
  }
  CHECK(refusal([](auto&) {}) == "");
  CHECK(refusal([](auto& o) { o.share = Share::kRoundRobin; }) == "");
  CHECK_THAT(refusal([](auto& o) {
               o.shuffle = Shuffle::kBlock;
               o.share = Share::kRoundRobin;
             }),
             ContainsSubstring("round-robin"));
  CHECK_THAT(refusal([](auto& o) { o.reuse = 0; }), ContainsSubstring("reuse 0 is out of range"));
  CHECK_THAT(refusal([](auto& o) { o.reuse = 1001; }),
             ContainsSubstring("reuse 1001 is out of range"));
  CHECK_THAT(refusal([](auto& o) {
               o.reuse = 2;
               o.share = Share::kRoundRobin;
             }),
             ContainsSubstring("round-robin"));
  CHECK_THAT(refusal([](auto& o) {
               o.order = Order::kSequential;
               o.strategy = Strategy::kLmdb;
               o.reuse = 2;
             }),
             ContainsSubstring("strategy lmdb"));
}

}  // namespace
}  // namespace lmdbio::test
