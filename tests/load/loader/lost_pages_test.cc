// Goal: a file that is cut short at any moment ends no process. No strategy but `lmdb` delivers
// bytes that were lost, except in the batch in place that is in use.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::Strategy;

constexpr uint64_t kPageBytes = 4096;

bool IsZeros(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Also where no batch follows: the end of the stream is an error then.
TEST_CASE("A batch in place that is in use turns to zeros, and the next call is an error",
          "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.global_batch_size = 10;
  options.max_batches = GENERATE(uint64_t{0}, uint64_t{1});
  CAPTURE(options.max_batches);
  const auto group = ranks::SoloGroup();
  const auto loader = Good(load::Loader::Open(*group, db.data_file().string(), options));
  REQUIRE(loader->Describe().find("in place") != std::string::npos);
  REQUIRE(Good(loader->Next()));
  const uint64_t file_bytes = std::filesystem::file_size(db.data_file());
  std::filesystem::resize_file(db.data_file(), 2 * kPageBytes);
  const load::Batch& batch = loader->batch();
  REQUIRE(batch.record_count() == 10);
  for (size_t i = 0; i < batch.record_count(); ++i) CHECK(IsZeros(batch.value(i)));
  const Result<bool> next = loader->Next();
  REQUIRE_FALSE(next.has_value());
  CHECK(next.error().code() == ErrorCode::kStale);
  // The reader may be the first to see it.
  const std::string shrunk =
      fmt::format("the file has shrunk from {} to {} bytes", file_bytes, 2 * kPageBytes);
  CHECK(next.error().message().find(shrunk) != std::string::npos);
}

TEST_CASE("A loader says that the program's handler of SIGBUS forbids the map", "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  const auto solo = ranks::SoloGroup();
  const auto before = Good(load::Loader::Open(*solo, db.data_file().string(), {}));
  REQUIRE(before->Describe().find("in place") != std::string::npos);
  struct sigaction ours = {};
  struct sigaction programs = {};
  programs.sa_handler = [](int) { std::abort(); };
  REQUIRE(::sigaction(SIGBUS, &programs, &ours) == 0);
  const auto loader = Good(load::Loader::Open(*solo, db.data_file().string(), {}));
  REQUIRE(::sigaction(SIGBUS, &ours, nullptr) == 0);
  CHECK(loader->Describe().find("in place") == std::string::npos);
  CHECK(loader->TakeNotes() ==
        std::vector<std::string>{"the file is not mapped, because the program has set its own "
                                 "handler of SIGBUS while lmdbio had maps"});
  const auto after = Good(load::Loader::Open(*solo, db.data_file().string(), {}));
  CHECK(after->TakeNotes() == std::vector<std::string>());
}

// A stream over a file that a thread cuts short after `delay`.
Delivered DeliverWhileCut(const TinyDb& db, const LoaderOptions& options, int rank_count,
                          std::chrono::microseconds delay, uint64_t left_bytes) {
  std::thread cutter([&] {
    std::this_thread::sleep_for(delay);
    std::filesystem::resize_file(db.data_file(), left_bytes);
  });
  Delivered delivered = Deliver({rank_count, 64}, db.data_file(), options);
  cutter.join();
  return delivered;
}

// The wrong records must be of the last batch of a rank whose stream ended with an error. Ranks
// have equal shares of each batch, in order.
void CheckRecords(const Delivered& delivered, const std::map<uint64_t, KeyValue>& expected,
                  const LoaderOptions& options, bool is_in_place) {
  const uint64_t batch_size = options.global_batch_size;
  const uint64_t share_size = batch_size / delivered.errors.size();
  std::map<uint64_t, uint64_t> last_batch;  // by rank
  for (const auto& [position, record] : delivered.records) {
    last_batch[position % batch_size / share_size] = position / batch_size;
  }
  bool is_error = false;
  for (const auto& error : delivered.errors) is_error = is_error || error;
  for (const auto& [position, record] : delivered.records) {
    if (record == expected.at(position)) continue;
    const uint64_t rank = position % batch_size / share_size;
    CAPTURE(position, rank, last_batch[rank]);
    REQUIRE(is_in_place);
    REQUIRE(delivered.errors[rank].has_value());
    REQUIRE(position / batch_size == last_batch[rank]);
  }
  if (!is_error) CHECK(delivered.records.size() == expected.size());
}

TEST_CASE("A file that is cut short at any moment is an error", "[loader][fault]") {
  constexpr int kCuts = 12;
  const auto [strategy, engine, is_in_place] =
      GENERATE(Catch::Generators::table<Strategy, std::optional<file::EngineKind>, bool>(
          {{Strategy::kAuto, std::nullopt, true},
           {Strategy::kLmm, std::nullopt, false},
           {Strategy::kLmmDm, std::nullopt, false},
           {Strategy::kLmmDio, std::nullopt, false},
           {Strategy::kScan, file::EngineKind::kMmap, false},
           {Strategy::kScan, file::EngineKind::kPread, false}}));
  LoaderOptions options;
  options.strategy = strategy;
  options.engine = engine;
  options.global_batch_size = 20;
  options.max_batches = 200;
  options.memory_budget_bytes = 1 << 20;
  CAPTURE(static_cast<int>(strategy), is_in_place);
  Random random(static_cast<uint64_t>(strategy) * 2 + 1);
  for (int i = 0; i < kCuts; ++i) {
    const TempDir dir;
    TinyDb db(dir.path());
    FillMixed(db);
    db.Commit();
    const auto expected = Expected(db.data_file(), options);
    const uint64_t pages = std::filesystem::file_size(db.data_file()) / kPageBytes;
    const std::chrono::microseconds delay(random.Below(20'000));
    const uint64_t left_bytes = random.Below(pages) * kPageBytes + random.Below(kPageBytes);
    CAPTURE(i, delay.count(), left_bytes, pages);
    const Delivered delivered = DeliverWhileCut(db, options, 1 + i % 2, delay, left_bytes);
    CheckRecords(delivered, expected, options, is_in_place);
  }
}

}  // namespace
}  // namespace lmdbio::test
