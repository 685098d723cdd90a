// Goal: the strategies of the dissertation do what their chapter says, beside delivering the
// records. Oracles: liblmdb's cursor for the records, the loader's counters for the rest.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/loader.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::Strategy;

constexpr uint64_t kMiB = 1 << 20;

// `count` records of a page each, in the order of their keys, with provenance.
std::filesystem::path MakeInOrder(const TempDir& dir, uint64_t count) {
  TinyDb db(dir.path());
  Random random(1);
  for (uint64_t i = 0; i < count; ++i) {
    db.Put(fmt::format("{:08}", i), random.BytesOf(3080));
    if (i % 1000 == 999) db.Commit();
  }
  db.Commit();
  file::RecordProvenanceOptions provenance;
  provenance.path = dir.path().string();
  REQUIRE(file::RecordProvenance(provenance).has_value());
  return db.data_file();
}

LoaderOptions OneEpoch(Strategy strategy, uint64_t record_count) {
  LoaderOptions options;
  options.strategy = strategy;
  options.global_batch_size = 64;
  options.max_batches = (record_count + 63) / 64;
  return options;
}

void CheckRecords(const Delivered& got, const std::filesystem::path& data_file,
                  const LoaderOptions& options) {
  for (const auto& error : got.errors) {
    INFO((error ? error->message() : ""));
    REQUIRE_FALSE(error.has_value());
  }
  CHECK(got.twice_count == 0);
  CHECK((got.records == Expected(data_file, options)));
}

// The bytes of one read of rank 0, on average.
double BytesOfRead(ranks::ThreadRanks ranks, const std::filesystem::path& data_file,
                   const LoaderOptions& options) {
  const Delivered got = Deliver(ranks, data_file, options);
  CheckRecords(got, data_file, options);
  REQUIRE(got.counters.read_requests > 0);
  return static_cast<double>(got.counters.bytes_read) /
         static_cast<double>(got.counters.read_requests);
}

// Dissertation 5.2.3: the memory budget limits the size of a read.
TEST_CASE("Coalesced reads grow with the memory budget", "[loader][papers]") {
  constexpr uint64_t kRecordCount = 6000;  // 24 MiB
  const TempDir dir;
  const auto data_file = MakeInOrder(dir, kRecordCount);
  const Strategy strategy = GENERATE(Strategy::kLmmDioProvCoal, Strategy::kLmmDioProvCoalStag);
  const int readers = GENERATE(1, 2);
  LoaderOptions options = OneEpoch(strategy, kRecordCount);
  options.readers_per_host = static_cast<uint32_t>(readers);
  const auto with_budget = [&](uint64_t bytes) {
    options.memory_budget_bytes = bytes;
    return BytesOfRead({2, 64}, data_file, options);
  };
  const double small = with_budget(4 * kMiB);
  const double middle = with_budget(16 * kMiB);
  const double large = with_budget(64 * kMiB);
  CHECK(small > 0.2 * kMiB);
  CHECK(middle > 1.5 * small);
  CHECK(large > 2 * middle);
  options.block_bytes = 64 << 10;  // another size than the default is obeyed
  CHECK(with_budget(64 * kMiB) <= 64 << 10);
}

TEST_CASE("Reads of other strategies do not depend on the memory budget", "[loader][papers]") {
  constexpr uint64_t kRecordCount = 6000;
  const TempDir dir;
  const auto data_file = MakeInOrder(dir, kRecordCount);
  LoaderOptions options = OneEpoch(Strategy::kAuto, kRecordCount);
  options.allow_map = false;
  options.memory_budget_bytes = 64 * kMiB;
  const double small = BytesOfRead({2, 64}, data_file, options);
  options.memory_budget_bytes = 256 * kMiB;
  CHECK(BytesOfRead({2, 64}, data_file, options) == Approx(small));
  CHECK(small <= kMiB);
}

// Dissertation 5.2.4, with the readers on one host. A reader that waits for a token has counted it.
TEST_CASE("Readers of one host take turns", "[loader][papers]") {
  constexpr uint64_t kRecordCount = 6000;
  const TempDir dir;
  const auto data_file = MakeInOrder(dir, kRecordCount);
  LoaderOptions options = OneEpoch(Strategy::kLmmDioProvCoalStag, kRecordCount);
  options.memory_budget_bytes = 4 * kMiB;  // many slots
  options.readers_per_host = 4;
  options.allow_map = false;
  bool take_turns = true;
  SECTION("one at a time") { options.stagger = 1; }
  SECTION("by a trial") {}
  SECTION("with auto, if the caller gives a number") {
    options.strategy = Strategy::kAuto;
    options.stagger = 1;
  }
  SECTION("not with auto alone") {
    options.strategy = Strategy::kAuto;
    take_turns = false;
  }
  SECTION("not without turns") {
    options.strategy = Strategy::kLmmDioProvCoal;
    take_turns = false;
  }
  SECTION("not with a token for each") {
    options.stagger = 4;
    take_turns = false;
  }
  const Delivered got = Deliver({4, 64}, data_file, options);
  CheckRecords(got, data_file, options);
  CHECK((got.counters.turn_s > 0) == take_turns);
}

}  // namespace
}  // namespace lmdbio::test
