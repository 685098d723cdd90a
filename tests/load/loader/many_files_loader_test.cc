// Many files as one, for loaders: the stream is that of the single file with the same records,
// which liblmdb reads.
#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/loader.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/split_records.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Delivered;
using test::Good;
using test::KeyValue;
using test::SplitRecords;
using test::ValueKind;

void CheckStream(const Delivered& all, const std::map<uint64_t, KeyValue>& expected) {
  for (const std::optional<Error>& error : all.errors) {
    if (error) FAIL(error->message());
  }
  REQUIRE(all.twice_count == 0);
  REQUIRE(all.foreign_count == 0);
  const bool is_same = all.records == expected;  // Catch would print all of them
  REQUIRE(is_same);
}

LoaderOptions Epochs(const SplitRecords& split, uint64_t epoch_count, uint64_t batch_size = 13) {
  LoaderOptions options;
  options.global_batch_size = batch_size;
  const uint64_t records = split.records().size();
  options.max_batches = epoch_count * ((records + batch_size - 1) / batch_size);
  options.layout_cache = "off";
  return options;
}

struct OrderChoice {
  Order order;
  Shuffle shuffle = Shuffle::kGlobal;
  uint32_t reuse = 1;
};

TEST_CASE("Loader delivers many files as the single file, in every order", "[loader][many-files]") {
  const auto kind =
      GENERATE(ValueKind::kInline, ValueKind::kOverflow, ValueKind::kMixed, ValueKind::kDuplicates);
  const size_t count = GENERATE(1, 3, 40);
  const SplitRecords split(count, kind, 160);
  for (const OrderChoice& named :
       {OrderChoice{Order::kSequential}, OrderChoice{Order::kShuffle},
        OrderChoice{Order::kShuffle, Shuffle::kBlock}, OrderChoice{Order::kChunked},
        OrderChoice{Order::kSequential, Shuffle::kGlobal, 2}}) {
    LoaderOptions options = Epochs(split, 2);
    options.order = named.order;
    options.shuffle = named.shuffle;
    options.reuse = named.reuse;
    options.seed = 5;
    options.block_records = 7;
    options.group_batches = named.order == Order::kSequential && named.reuse == 1 ? 0 : 3;
    const auto expected = test::ExpectedOf(split.records(), options);
    for (const ranks::ThreadRanks ranks :
         {ranks::ThreadRanks{1, 1}, ranks::ThreadRanks{3, 3}, ranks::ThreadRanks{4, 2}}) {
      INFO(count << " files, order " << static_cast<int>(named.order) << "."
                 << static_cast<int>(named.shuffle) << ", reuse " << named.reuse << ", "
                 << ranks.rank_count << " ranks");
      CheckStream(test::Deliver(ranks, split.folder(), options), expected);
    }
  }
}

TEST_CASE("Loader delivers many files with every engine and few descriptors",
          "[loader][many-files]") {
  const SplitRecords split(25, ValueKind::kMixed, 300);
  for (const file::EngineKind engine : {file::EngineKind::kUring, file::EngineKind::kPread}) {
    for (const file::CachePolicy cache :
         {file::CachePolicy::kBuffered, file::CachePolicy::kDirect, file::CachePolicy::kMixed}) {
      for (const int64_t keep_bytes : {-1, 1 << 30}) {
        for (const uint64_t open_files_max : {0, 2, 7}) {
          LoaderOptions options = Epochs(split, 2);
          options.order = Order::kShuffle;
          options.engine = engine;
          options.cache = cache;
          options.keep_bytes = keep_bytes;
          options.open_files_max = open_files_max;
          options.block_bytes = 16384;
          INFO(file::EngineKindName(engine) << ", " << file::CachePolicyName(cache) << ", keep "
                                            << keep_bytes << ", " << open_files_max);
          CheckStream(test::Deliver({2, 2}, split.folder(), options),
                      test::ExpectedOf(split.records(), options));
        }
      }
    }
  }
}

TEST_CASE("Several readers and hosts share the walk over many files", "[loader][many-files]") {
  const SplitRecords split(9, ValueKind::kInline, 5000);
  LoaderOptions options = Epochs(split, 1, 64);
  options.order = GENERATE(Order::kSequential, Order::kShuffle);
  options.readers_per_host = 2;
  const auto expected = test::ExpectedOf(split.records(), options);
  CheckStream(test::Deliver({4, 4}, split.folder(), options), expected);
  CheckStream(test::Deliver({4, 2}, split.folder(), options), expected);
}

TEST_CASE("A strategy that needs provenance needs that of each file", "[loader][many-files]") {
  const SplitRecords split(4, ValueKind::kOverflow, 100);
  LoaderOptions options = Epochs(split, 1);
  options.strategy = Strategy::kLmmDioProvCoal;
  for (size_t i = 0; i < 4; ++i) {
    if (i == 3) {
      const Delivered none = test::Deliver({2, 2}, split.folder(), options);
      REQUIRE(none.errors[0]);
      CHECK(none.errors[0]->code() == ErrorCode::kNotFound);
      CHECK(none.errors[0]->message().find(split.file(3).string() + ".prov") != std::string::npos);
    }
    file::RecordProvenanceOptions record;
    record.path = split.file(i);
    REQUIRE(file::RecordProvenance(record));
  }
  const auto expected = test::ExpectedOf(split.records(), options);
  CheckStream(test::Deliver({2, 2}, split.folder(), options), expected);
  CheckStream(test::Deliver({4, 2}, split.folder(), options), expected);
}

// Runs one rank alone and returns its state after `batch_count` batches.
std::string StateAfter(const std::vector<DatabasePath>& list, LoaderOptions options,
                       uint64_t batch_count) {
  const auto group = ranks::SoloGroup();
  options.max_batches = 0;
  const auto loader = Good(Loader::Open(*group, list, options));
  for (uint64_t i = 0; i < batch_count; ++i) REQUIRE(Good(loader->Next()));
  return loader->Save();
}

Status OpenAt(const std::vector<DatabasePath>& list, LoaderOptions options,
              const std::string& state) {
  const auto group = ranks::SoloGroup();
  options.state = state;
  const auto loader = Loader::Open(*group, list, options);
  return loader ? Status() : Fail(loader.error().Copy());
}

TEST_CASE("A stream over many files continues with other ranks", "[loader][many-files]") {
  const SplitRecords split(11, ValueKind::kMixed, 200);
  LoaderOptions options = Epochs(split, 2);
  options.order = Order::kShuffle;
  options.seed = 3;
  auto expected = test::ExpectedOf(split.records(), options);
  const std::string state = StateAfter(split.list(), options, 5);
  expected.erase(expected.begin(), expected.lower_bound(5 * 13));
  options.state = state;
  for (const ranks::ThreadRanks ranks : {ranks::ThreadRanks{1, 1}, ranks::ThreadRanks{4, 2}}) {
    const Delivered rest = test::Deliver(ranks, split.folder(), options);
    CheckStream(rest, expected);
  }
}

TEST_CASE("Loader continues elsewhere in a list", "[loader][many-files]") {
  const SplitRecords split(5, ValueKind::kInline, 100);
  const auto group = ranks::SoloGroup();
  LoaderOptions options;
  options.global_batch_size = 10;
  const auto loader = Good(Loader::Open(*group, split.folder().string(), options));
  REQUIRE(Good(loader->Next()));
  const std::string state = loader->Save();
  REQUIRE(Good(loader->Next()));
  // A new file in the folder does not change an open loader.
  std::filesystem::copy_file(split.file(0), split.folder() / "data.9.mdb");
  REQUIRE(loader->Restore(state));
  REQUIRE(Good(loader->Next()));
  CHECK(loader->batch().first_position() == 10);
  REQUIRE(loader->SetEpoch(3));
  REQUIRE(Good(loader->Next()));
  CHECK(loader->batch().first_position() == 300);
  CHECK(test::AsText(loader->batch().value(0)) == split.records()[0].second);
  CHECK(loader->Describe().find("5 files") != std::string::npos);
}

TEST_CASE("A state of other files is refused with the name of the file", "[loader][many-files]") {
  const SplitRecords split(5, ValueKind::kInline, 100);
  const std::vector<DatabasePath> list = split.list();
  const LoaderOptions options;
  const std::string state = StateAfter(list, options, 1);
  CHECK(OpenAt(list, options, state));
  const auto message = [&](const std::vector<DatabasePath>& other) {
    const Status opened = OpenAt(other, options, state);
    REQUIRE(!opened);
    CHECK(opened.error().code() == ErrorCode::kStale);
    return opened.error().message();
  };
  std::vector<DatabasePath> other = list;
  std::swap(other[1], other[2]);
  CHECK(message(other) ==
        "the files have changed: the loader does not have data.1.mdb as file 2, as the saved state "
        "has, with 5 files");
  other = list;
  other.pop_back();
  CHECK(message(other) ==
        "the files have changed: the loader does not have data.4.mdb as file 5, as the saved state "
        "has, with 5 files");
  other = list;
  other.push_back(list[0]);
  CHECK(message(other) ==
        "the files have changed: the saved state does not have data.0.mdb as file 6, as the loader "
        "has, with 6 files");
  CHECK(message({list[0]}).starts_with("the files have changed: the loader does not have "));
  test::TinyDb(split.file(3), {.environment_flags = MDB_NOSUBDIR}).Put("00000060", "x").Commit();
  CHECK(message(list).starts_with(
      "the files have changed: the loader has data.3.mdb with transaction "));
  // The state of a single file, and a list.
  const Status single = OpenAt(list, options, StateAfter({{split.single(), ""}}, options, 1));
  REQUIRE(!single);
  CHECK(single.error().code() == ErrorCode::kStale);
}

TEST_CASE("What works with one file only is refused by name", "[loader][many-files]") {
  const SplitRecords split(3, ValueKind::kInline, 60);
  const std::string name = split.file(0).string() + " and 2 more files: ";
  const auto message = [&](const LoaderOptions& options) {
    const Delivered none = test::Deliver({2, 2}, split.folder(), options);
    REQUIRE(none.errors[0]);
    REQUIRE(none.errors[1]);
    CHECK(none.errors[0]->code() == ErrorCode::kUnsupported);
    return none.errors[0]->message();
  };
  for (const Strategy strategy : {Strategy::kLmm, Strategy::kLmmDio, Strategy::kLmdb}) {
    LoaderOptions options;
    options.strategy = strategy;
    CHECK(message(options) == fmt::format("{}strategy {} needs a single file; use auto", name,
                                          CompositionOf(strategy).name));
  }
  LoaderOptions mapped;
  mapped.engine = file::EngineKind::kMmap;
  CHECK(message(mapped) == name + "engine mmap needs a single file; use uring or pread");
  LoaderOptions joint;
  joint.joint_walk = JointWalkUse::kOn;
  CHECK(message(joint) == name + "joint_walk on needs a single file; use auto or off");
  LoaderOptions exchange;
  exchange.exchange = ExchangeUse::kOn;
  CHECK(message(exchange) == name + "exchange on needs a single file; use auto or off");
}

// Opens a list of its own on each rank, and returns the errors.
std::vector<std::string> ErrorsOf(const std::vector<std::vector<DatabasePath>>& lists) {
  std::vector<std::string> errors(lists.size());
  const int count = static_cast<int>(lists.size());
  ranks::RunAsThreads({count, 1}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto loader = Loader::Open(group, lists[rank], LoaderOptions());
    if (!loader) errors[rank] = loader.error().message();
  });
  return errors;
}

TEST_CASE("Ranks that see other files are refused", "[loader][many-files]") {
  const SplitRecords split(4, ValueKind::kInline, 80);
  const std::vector<DatabasePath> list = split.list();
  std::vector<DatabasePath> other = list;
  SECTION("one fewer") {
    other.erase(other.begin() + 2);
    const auto errors = ErrorsOf({list, other});
    CHECK(errors[1] == other[0].path +
                           " and 2 more files: this rank does not have data.2.mdb as file 3, as "
                           "rank 0 has, with 4 files");
    CHECK(errors[0].find("data.2.mdb") != std::string::npos);
  }
  SECTION("absent") {
    other[2].path += ".absent";
    const auto errors = ErrorsOf({list, other});
    CHECK(errors[1] == other[2].path + ": cannot be opened: No such file or directory");
    CHECK(errors[0].find(other[2].path) != std::string::npos);
  }
  SECTION("a single file") {
    const auto errors = ErrorsOf({list, {list[0]}});
    CHECK(errors[1] == list[0].path + ": rank 0 has a list of 4 files, and this rank one of 1");
    const auto reverse = ErrorsOf({{list[0]}, list});
    CHECK(reverse[1] ==
          list[0].path + " and 3 more files: rank 0 has a list of 1 files, and this rank one of 4");
  }
  SECTION("none") {
    const auto errors = ErrorsOf({list, {}});
    CHECK(errors[1] == "the path, or the list of files, is empty");
    CHECK(!errors[0].empty());
  }
}

TEST_CASE("A damaged file ends the stream with its name and page", "[loader][many-files]") {
  const SplitRecords split(5, ValueKind::kOverflow, 100);
  std::vector<std::byte> bytes = test::ReadWholeFile(split.file(3));
  const std::string& value = split.records()[65].second;
  const auto at = std::search(bytes.begin(), bytes.end(), test::AsBytes(value).begin(),
                              test::AsBytes(value).end());
  REQUIRE(at != bytes.end());
  const auto page = static_cast<uint64_t>(at - bytes.begin()) / 4096;
  bytes[page * 4096] ^= std::byte{1};
  test::WriteWholeFile(split.file(3), bytes);
  LoaderOptions options = Epochs(split, 1);
  options.order = Order::kShuffle;
  const Delivered ended = test::Deliver({1, 1}, split.folder(), options);
  REQUIRE(ended.errors[0]);
  CHECK(ended.errors[0]->code() == ErrorCode::kCorruption);
  CHECK(ended.errors[0]->message().starts_with(
      fmt::format("{}: page {}: ", split.file(3).string(), page)));
  options.on_error = OnError::kSkip;
  const Delivered rest = test::Deliver({1, 1}, split.folder(), options);
  CHECK(!rest.errors[0]);
  CHECK(rest.skipped_count == 1);
  CHECK(rest.records.size() == 99);
}

TEST_CASE("A loader reads 2,000 files with 256 descriptors", "[loader][many-files]") {
  const SplitRecords split(10, ValueKind::kMixed, 60);
  const test::TempDir dir;
  const std::vector<KeyValue> records = split.CopyTo(dir.path(), 2000);
  const test::DescriptorLimit limit(256);
  for (const Order order : {Order::kSequential, Order::kShuffle}) {
    LoaderOptions options;
    options.order = order;
    options.global_batch_size = 100;
    options.max_batches = 240;
    const Delivered all = test::Deliver({2, 2}, dir.path(), options);
    CheckStream(all, test::ExpectedOf(records, options));
  }
}

TEST_CASE("400 many files give the stream of the single file", "[loader][many-files]") {
  const SplitRecords split(400, ValueKind::kInline, 4000);
  LoaderOptions options = Epochs(split, 1, 50);
  options.order = GENERATE(Order::kSequential, Order::kShuffle);
  const auto expected = test::ExpectedOf(split.records(), options);
  CheckStream(test::Deliver({3, 3}, split.folder(), options), expected);
  CheckStream(test::Deliver({3, 3}, split.single(), options), expected);
}

}  // namespace
}  // namespace lmdbio::load
