// Goal: the rows on the device are those of liblmdb's records with every way to read them, in every
// order of the device's streams. The stand-in draws that order by a seed, so a wait that is missing
// gives wrong rows under some seed.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/feed/device_feed.h"
#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/feed/fed_stream.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::feed {
namespace {

using load::LoaderOptions;
using load::Order;
using test::EmulatedGpu;
using test::FedReader;
using test::Good;
using test::KeyValue;
using test::Must;
using test::TempDir;
using test::TinyDb;

struct FedStream {
  std::map<uint64_t, KeyValue> records;
  std::vector<std::string> errors;
  std::vector<std::string> notes;
  FeedCounters counters;  // of rank 0
};

// Runs feeds on threads that play ranks, each with a program of two streams, to the end.
FedStream Feed(ranks::ThreadRanks ranks, const std::string& path, const LoaderOptions& options,
               const FeedOptions& feed_options) {
  FedStream all;
  std::mutex mutex;
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    const auto fail = [&](const Error& error) {
      const std::lock_guard lock(mutex);
      all.errors.push_back(error.message());
    };
    auto loader = load::Loader::Open(group, path, options);
    if (!loader) return fail(loader.error());
    auto opened = Good(device::Device::Open(0, *Good(device::SystemDriver())));
    std::vector<device::DeviceStream> streams;
    for (int i = 0; i < 2; ++i) streams.push_back(Good(opened->MakeStream()));
    FedReader reader(opened);
    auto feed = DeviceFeed::Open(**loader, 0, feed_options, test::EmulatedKernelImage());
    if (!feed) return fail(feed.error());
    FedBatch batch;
    for (size_t i = 0;; ++i) {
      device::DeviceStream& stream = streams[i / 3 % 2];
      const Result<bool> found = (*feed)->Next(stream.native(), batch);
      if (!found) return fail(found.error());
      if (!*found) break;
      reader.Add(batch, stream.native());
    }
    for (device::DeviceStream& stream : streams) Must(stream.Synchronize());
    const std::lock_guard lock(mutex);
    all.records.merge(test::OneField(reader));
    for (std::string& note : (*feed)->TakeNotes()) all.notes.push_back(std::move(note));
    if (group.rank() == 0) all.counters = (*feed)->counters();
  });
  return all;
}

void CheckFeed(const ranks::ThreadRanks& ranks, const TinyDb& db, const LoaderOptions& options,
               const FeedOptions& feed_options) {
  const FedStream got = Feed(ranks, db.data_file().string(), options, feed_options);
  for (const std::string& error : got.errors) {
    INFO(error);
    CHECK(false);
  }
  CHECK((got.records == test::Expected(db.data_file(), options)));
}

struct MixedDatabase {
  MixedDatabase() : db(dir.path()) {
    test::FillMixed(db);
    db.Commit();
    file::RecordProvenanceOptions provenance;
    provenance.path = dir.path().string();
    static_cast<void>(Good(file::RecordProvenance(provenance)));
  }
  TempDir dir;
  TinyDb db;
};

TEST_CASE("Rows are those of liblmdb with every strategy and order", "[feed]") {
  const MixedDatabase database;
  uint64_t seed = 0;
  for (const auto& row : load::kStrategies) {
    for (const Order order : {Order::kSequential, Order::kShuffle, Order::kChunked}) {
      for (const int ranks : {1, 3}) {
        for (const RowShape shape : {RowShape::kRows, RowShape::kPacked}) {
          LoaderOptions options;
          options.strategy = row.strategy;
          options.order = order;
          if (order == Order::kChunked) options.group_batches = 5;
          options.global_batch_size = 24;
          options.max_batches = 25;  // 17 make an epoch
          options.memory_budget_bytes = 1 << 20;
          if (!load::CheckOptions(options)) continue;  // a strategy that cannot shuffle
          INFO(row.name << ", order " << static_cast<int>(order) << ", " << ranks << " ranks");
          const EmulatedGpu gpu(++seed);
          CheckFeed({ranks, 64}, database.db, options,
                    {.rows = {shape, 0}, .depth = 1 + static_cast<uint32_t>(seed % 4)});
        }
      }
    }
  }
}

TEST_CASE("Rows are those of liblmdb with every engine and share", "[feed]") {
  const MixedDatabase database;
  uint64_t seed = 0;
  for (const auto engine :
       {file::EngineKind::kMmap, file::EngineKind::kPread, file::EngineKind::kUring}) {
    for (const auto share : {load::Share::kBlock, load::Share::kRoundRobin, load::Share::kFill}) {
      for (const auto tail : {load::Tail::kWrap, load::Tail::kShort, load::Tail::kDrop}) {
        LoaderOptions options = test::WindowOptions();
        options.engine = engine;
        options.share = share;
        options.tail = tail;
        options.global_batch_size = 37;
        options.max_batches = 15;
        const EmulatedGpu gpu(++seed);
        CheckFeed({2, 1}, database.db, options, {});
      }
    }
  }
}

TEST_CASE("A rank without records in a batch gets it without rows", "[feed]") {
  const MixedDatabase database;
  LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 2;
  options.max_batches = 30;
  for (const RowShape shape : {RowShape::kRows, RowShape::kPacked}) {
    const EmulatedGpu gpu(1);
    CheckFeed({3, 64}, database.db, options, {.rows = {shape, 0}, .depth = 2});
  }
}

// The window is pinned, held in a map, in a file cache, or in memory of this rank.
TEST_CASE("Values are copied from wherever the loader has them", "[feed]") {
  const MixedDatabase database;
  LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 24;
  options.max_batches = 40;
  std::string note;
  bool is_gathered = false;
  SECTION("the window") { is_gathered = true; }
  SECTION("a map of the file") {
    options.allow_map = true;
    note = "lie in a map of the file";
  }
  SECTION("a kept copy of the file") {
    options.keep_bytes = 1 << 30;
    options.order = Order::kShuffle;
    note = "lie in a map of the file, or in a kept copy of it";
  }
  SECTION("the map of liblmdb") {
    options.strategy = load::Strategy::kLmdb;
    note = "lie in a map of the file";
  }
  const EmulatedGpu gpu(3);
  const FedStream got = Feed({1, 1}, database.db.data_file().string(), options, {});
  CHECK(got.errors.empty());
  CHECK((got.records == test::Expected(database.db.data_file(), options)));
  CHECK(got.counters.batch_count == 40);
  CHECK(got.counters.gathered_count == (is_gathered ? 40 : 0));
  CHECK(got.counters.staged_count == (is_gathered ? 0 : 40));
  REQUIRE(got.notes.size() == (is_gathered ? 0 : 1));
  if (!is_gathered) CHECK_THAT(got.notes[0], ContainsSubstring(note));
}

// Small windows are written again soon after a batch was let go.
TEST_CASE("Rows are right in any order of the streams", "[feed]") {
  const TempDir dir;
  TinyDb db(dir.path());
  test::Random random(5);
  for (int i = 0; i < 240; ++i) {
    db.Put(fmt::format("{:06}", i), random.BytesOf(random.Below(i % 5 == 0 ? 30'000 : 3'000)));
  }
  db.Commit();
  LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 6;
  options.max_batches = 60;
  options.order = Order::kShuffle;
  options.memory_budget_bytes = 1 << 20;
  const auto expected = test::Expected(db.data_file(), options);
  for (uint64_t seed = 1; seed <= test::SeedCount(60); ++seed) {
    INFO("seed " << seed);
    const EmulatedGpu gpu(seed);
    const FeedOptions feed_options = {
        .rows = {seed % 2 == 0 ? RowShape::kRows : RowShape::kPacked, seed % 3 * 10'000},
        .depth = 1 + static_cast<uint32_t>(seed % 3)};
    const FedStream got = Feed({1, 1}, db.data_file().string(), options, feed_options);
    CHECK(got.errors.empty());
    REQUIRE((got.records == expected));
  }
}

}  // namespace
}  // namespace lmdbio::feed
