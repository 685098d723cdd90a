// Goal: processes that are the ranks of a host feed their GPUs out of one window, which each of
// them pins; none waits for another for ever, and a killed rank is an error for the others.
#include <csignal>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "lmdbio/feed/device_feed.h"
#include "tests/feed/fed_stream.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::feed {
namespace {

using load::Loader;
using load::LoaderOptions;
using test::EmulatedGpu;
using test::FedReader;
using test::ForkedJob;
using test::Good;
using test::KeyValue;
using test::Must;
using test::ProgramOnDevice;
using test::TempDir;
using test::TinyDb;

// 120 values of 20,000 bytes: twice the least memory of a window.
struct ProcessDatabase {
  ProcessDatabase() : db(dir.path()) {
    for (int i = 0; i < 120; ++i) {
      db.Put(fmt::format("{:06}", i), fmt::format("{:06}", i) + std::string(19'994, 'v'));
    }
    db.Commit();
  }
  TempDir dir;
  TinyDb db;
};

LoaderOptions SmallWindow() {
  LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 8;
  options.max_batches = 45;
  options.memory_budget_bytes = 1 << 20;
  options.order = load::Order::kShuffle;
  return options;
}

TEST_CASE("The ranks of a host feed their GPUs out of one window", "[feed_processes]") {
  const ProcessDatabase database;
  const LoaderOptions options = SmallWindow();
  const auto expected = test::Expected(database.db.data_file(), options);
  for (const int rank_count : {1, 2, 4}) {
    INFO(rank_count << " ranks");
    ForkedJob job(rank_count, rank_count);
    job.Start([&](ranks::Group& group, ForkedJob&) -> std::string {
      const EmulatedGpu gpu(static_cast<uint64_t>(group.rank()) + 1);
      auto loader = Loader::Open(group, database.db.data_file().string(), options);
      if (!loader) return loader.error().message();
      const auto opened = gpu.Open();
      ProgramOnDevice program(opened);
      FedReader reader(opened, 16 << 20);
      auto feed =
          DeviceFeed::Open(**loader, 0, {.rows = {}, .depth = 3}, test::EmulatedKernelImage());
      if (!feed) return feed.error().message();
      FedBatch batch;
      while (true) {
        const auto found = (*feed)->Next(program.stream().native(), batch);
        if (!found) return found.error().message();
        if (!*found) break;
        reader.Add(batch, program.stream().native());
      }
      Must(program.stream().Synchronize());
      const auto records = test::OneField(reader);
      if (records.size() != 360U / static_cast<size_t>(group.size())) return "not its share";
      for (const auto& [position, record] : records) {
        if (!expected.contains(position) || expected.at(position) != record) {
          return fmt::format("other rows at position {}", position);
        }
      }
      if ((*feed)->counters().gathered_count != 45) return "not gathered out of the window";
      return "";
    });
    for (int rank = 0; rank < rank_count; ++rank) CHECK(job.EndOf(rank) == "");
  }
}

TEST_CASE("A rank that is killed is an error of the others, and their feeds end",
          "[feed_processes]") {
  const ProcessDatabase database;
  LoaderOptions options = SmallWindow();
  options.max_batches = 0;
  ForkedJob job(3, 3);
  job.Start([&](ranks::Group& group, ForkedJob& running) -> std::string {
    const EmulatedGpu gpu(static_cast<uint64_t>(group.rank()) + 1);
    auto loader = Loader::Open(group, database.db.data_file().string(), options);
    if (!loader) return loader.error().message();
    const auto opened = gpu.Open();
    ProgramOnDevice program(opened);
    auto feed = DeviceFeed::Open(**loader, 0, {}, test::EmulatedKernelImage());
    if (!feed) return feed.error().message();
    FedBatch batch;
    for (int i = 0;; ++i) {
      if (i == 20) running.SayReady();
      const auto found = (*feed)->Next(program.stream().native(), batch);
      if (found) continue;
      return found.error().code() == ErrorCode::kPeerFailed ? "" : found.error().message();
    }
  });
  REQUIRE(job.AwaitReady());
  job.Send(SIGKILL, 1);
  CHECK(job.EndOf(1) == "killed");
  for (const int rank : {0, 2}) CHECK(job.EndOf(rank) == "");
}

}  // namespace
}  // namespace lmdbio::feed
