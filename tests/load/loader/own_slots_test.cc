// Goal: ranks that use a cached file in place, with provenance, read for themselves: they get the
// sequence of liblmdb's cursor, wait for no other rank, and still learn of the failures of others.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/loader.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::Loader;
using load::LoaderOptions;
using load::Share;

constexpr std::string_view kAlone = "each rank reads for itself";
constexpr std::chrono::seconds kLongEnough{20};

// 300 values of 6,000 bytes, written just now and so in the page cache.
class CachedDatabase {
 public:
  explicit CachedDatabase(bool has_provenance = true) : db_(dir_.path()) {
    for (int i = 0; i < 300; ++i) {
      db_.Put(fmt::format("{:06}", i), fmt::format("{:06}", i) + std::string(5994, 'v'));
    }
    db_.Commit();
    file::RecordProvenanceOptions provenance;
    provenance.path = dir_.path().string();
    if (has_provenance) REQUIRE(file::RecordProvenance(provenance).has_value());
  }
  std::filesystem::path data_file() const { return db_.data_file(); }

 private:
  TempDir dir_;
  TinyDb db_;
};

LoaderOptions SmallOptions() {
  LoaderOptions options;
  options.global_batch_size = 10;
  options.layout_cache = "off";
  return options;
}

// The description by rank 0.
std::string HowItReads(const CachedDatabase& database, const LoaderOptions& options, int ranks) {
  std::string how;
  ranks::RunAsThreads({ranks, 64}, [&](ranks::Group& group) {
    const auto loader = Loader::Open(group, database.data_file().string(), options);
    if (!loader) std::terminate();
    if (group.rank() == 0) how = (*loader)->Describe();
    if (!group.Barrier()) std::terminate();
  });
  return how;
}

TEST_CASE("Ranks read for themselves where no option asks for a reading thread", "[loader]") {
  const CachedDatabase database;
  LoaderOptions options = SmallOptions();
  REQUIRE(HowItReads(database, options, 2).find("in place") != std::string::npos);
  CHECK(HowItReads(database, options, 2).find(kAlone) != std::string::npos);
  CHECK(HowItReads(database, options, 1).find(kAlone) == std::string::npos);
  CHECK(HowItReads(CachedDatabase(false), options, 2).find(kAlone) == std::string::npos);
  SECTION("several readers") { options.readers_per_host = 2; }
  SECTION("a number of batches to read ahead") { options.prefetch_batches = 3; }
  SECTION("shares that move between ranks") {
    options.reuse = 2;
    options.reuse_among = load::ReuseAmong::kHost;
  }
  const std::string how = HowItReads(database, options, 2);
  CHECK(how.find("in place") != std::string::npos);
  CHECK(how.find(kAlone) == std::string::npos);
}

TEST_CASE("Ranks that read for themselves get the sequence of liblmdb's cursor", "[loader]") {
  const CachedDatabase database;
  LoaderOptions options = SmallOptions();
  options.max_batches = 100;
  options.share = GENERATE(Share::kBlock, Share::kRoundRobin, Share::kFill);
  options.global_batch_size = GENERATE(1U, 7U, 64U);
  SECTION("in the order of the database") {}
  SECTION("shuffled") { options.order = load::Order::kShuffle; }
  SECTION("short batches at the end of epochs") { options.tail = load::Tail::kShort; }
  SECTION("chunked, each record twice") {
    if (options.share == Share::kRoundRobin) options.share = Share::kBlock;
    options.order = load::Order::kChunked;
    options.reuse = 2;
    options.group_batches = 3;
  }
  SECTION("one shard of two") { options.num_shards = 2; }
  const Delivered got = Deliver({3, 64}, database.data_file(), options);
  for (const auto& error : got.errors) REQUIRE_FALSE(error.has_value());
  CHECK(got.foreign_count == 0);
  CHECK(got.twice_count == 0);
  const auto expected = Expected(database.data_file(), options);
  if (options.num_shards == 1) CHECK((got.records == expected));
  for (const auto& [position, record] : got.records) CHECK((expected.at(position) == record));
}

// With a reading thread, the first rank would wait for memory that the other one holds.
TEST_CASE("A rank that reads for itself waits for no other rank", "[loader]") {
  const CachedDatabase database;
  LoaderOptions options = SmallOptions();
  options.memory_budget_bytes = 1 << 20;
  constexpr uint64_t kEpochBatches = 30;
  constexpr uint64_t kEpochs = 20;
  std::array<uint64_t, 2> batch_counts = {};
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    const auto loader = Loader::Open(group, database.data_file().string(), options);
    if (!loader) std::terminate();
    const auto read_epochs = [&] {
      for (uint64_t i = 0; i < kEpochs * kEpochBatches; ++i) {
        const auto step = (*loader)->NextWithin(kLongEnough);
        if (!step || *step != Loader::Step::kBatch) return;
        ++batch_counts[static_cast<size_t>(group.rank())];
      }
    };
    for (int round = 0; round < 2; ++round) {
      // The last rank is the first to read, also after the loader went elsewhere.
      for (int turn = 1; turn >= 0; --turn) {
        if (group.rank() == turn) read_epochs();
        if (!group.Barrier()) std::terminate();
      }
      if (round == 0 && !(*loader)->SetEpoch(3)) std::terminate();
    }
  });
  for (const uint64_t count : batch_counts) CHECK(count == 2 * kEpochs * kEpochBatches);
}

// Takes batches until there is an error. Returns its message.
std::string FirstError(Loader& loader) {
  const auto give_up = std::chrono::steady_clock::now() + kLongEnough;
  while (std::chrono::steady_clock::now() < give_up) {
    const Result<bool> found = loader.Next();
    if (!found) return found.error().message();
  }
  return "no error";
}

TEST_CASE("A rank that reads for itself learns that another rank was killed", "[loader][fault]") {
  const CachedDatabase database;
  const std::string data_file = database.data_file().string();
  ForkedJob job(2, 2);
  job.Start([&](ranks::Group& group, ForkedJob&) -> std::string {
    const auto loader = Good(Loader::Open(group, data_file, SmallOptions()));
    if (loader->Describe().find(kAlone) == std::string::npos) return loader->Describe();
    Good(loader->Next());
    job.SayReady();
    if (group.rank() == 1) std::this_thread::sleep_for(kLongEnough);
    return FirstError(*loader);
  });
  REQUIRE(job.AwaitReady());
  job.Send(SIGKILL, 1);
  CHECK(job.EndOf(0).starts_with("rank 1 (process "));
}

// A rank that gives up because of rank 1 is gone itself soon, and others may notice that first.
TEST_CASE("The group's word on which rank has ended counts", "[loader][fault]") {
  const CachedDatabase database;
  const std::string data_file = database.data_file().string();
  const bool does_know = GENERATE(true, false);
  ForkedJob job(2, 2);
  job.Start([&](ranks::Group& group, ForkedJob&) -> std::string {
    ranks::HookedGroup hooked(
        group, [](ranks::Group& host, uint64_t bytes) { return host.AllocateShared(bytes); });
    hooked.set_ended([&]() -> Status {
      if (!does_know) return {};
      return Fail(ErrorCode::kPeerFailed, "rank 7 on node-3 has ended unexpectedly");
    });
    const auto loader = Good(Loader::Open(hooked, data_file, SmallOptions()));
    job.SayReady();
    if (group.rank() == 1) std::this_thread::sleep_for(kLongEnough);
    return FirstError(*loader);
  });
  REQUIRE(job.AwaitReady());
  job.Send(SIGKILL, 1);
  CHECK(job.EndOf(0).starts_with(does_know ? "rank 7 on node-3 has" : "rank 1 (process "));
}

// The page is spoilt after Open, because provenance would not fit a spoilt file.
TEST_CASE("A page that one rank cannot use is an error of all ranks", "[loader][fault]") {
  const CachedDatabase database;
  LoaderOptions options = SmallOptions();
  options.global_batch_size = 200;
  // The leaf page with the key of record 199, which is before its value.
  const auto spoil = [&] {
    std::ifstream in(database.data_file(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const size_t at = content.find("000199");
    if (at == std::string::npos) std::terminate();
    std::fstream out(database.data_file(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at / 4096 * 4096));
    out.write("spoilt!!", 8);
  };
  std::array<std::optional<Error>, 2> errors;
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    const auto loader = Loader::Open(group, database.data_file().string(), options);
    if (!loader) std::terminate();
    std::optional<Error>& error = errors[static_cast<size_t>(group.rank())];
    if (group.rank() == 1) spoil();
    // Rank 1 comes first and gets record 199 in its first batch. Rank 0 would get it later.
    if (group.rank() == 0 && !group.Barrier()) std::terminate();
    for (int i = 0; i < 40 && !error; ++i) {
      Result<bool> found = (*loader)->Next();
      if (!found) error.emplace(std::move(found).error());
    }
    if (group.rank() == 1 && !group.Barrier()) std::terminate();
  });
  REQUIRE(errors[0].has_value());
  REQUIRE(errors[1].has_value());
  CHECK(errors[1]->code() == ErrorCode::kStale);  // the file has changed since Open
  CHECK(errors[0]->code() == ErrorCode::kPeerFailed);
  CHECK(errors[0]->message() == "rank 1: " + errors[1]->message());
}

}  // namespace
}  // namespace lmdbio::test
