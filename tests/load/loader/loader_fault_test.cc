// Goal: a damaged or changed file is an error on every rank, or its records are skipped and
// counted.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::OnError;
using load::Strategy;

constexpr uint64_t kPageBytes = 4096;

void Overwrite(const std::filesystem::path& file, uint64_t offset, const std::string& bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(stream.good());
}

// The page of the file where the value of the record at `index` begins.
uint64_t PageOfValue(const std::filesystem::path& file, const std::string& value) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(stream)), {});
  const size_t at = content.find(value.substr(0, 64));
  REQUIRE(at != std::string::npos);
  return at / kPageBytes;
}

// Damages the start of the page where `value` begins, and returns its number.
uint64_t SpoilPageOf(const std::filesystem::path& file, const std::string& value,
                     size_t damaged_bytes) {
  const uint64_t page = PageOfValue(file, value);
  Overwrite(file, page * kPageBytes, std::string(damaged_bytes, '\x5A'));
  return page;
}

// `auto` uses a file that was just written in place; the rank that gets the value then finds the
// damage. Otherwise the reader finds it, before any rank gets the batch.
TEST_CASE("A damaged overflow head is an error, or one skipped record", "[loader][fault]") {
  const Strategy strategy = GENERATE(Strategy::kScan, Strategy::kAuto);
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = strategy;
  options.global_batch_size = 50;
  options.max_batches = 6;
  auto expected = Expected(db.data_file(), options);
  const uint64_t page = SpoilPageOf(db.data_file(), expected.at(123).second, 8);

  const Delivered raised = Deliver({3, 64}, db.data_file(), options);
  int finders = 0;
  for (const auto& error : raised.errors) {
    if (!error) continue;
    CHECK(error->message().find(std::to_string(page)) != std::string::npos);
    if (error->code() == ErrorCode::kCorruption) {
      ++finders;
    } else {
      CHECK(error->code() == ErrorCode::kPeerFailed);
    }
  }
  CHECK(finders == 1);
  // Another rank may have passed its last batch before a rank finds the damage.
  if (strategy == Strategy::kScan) {
    for (const auto& error : raised.errors) CHECK(error.has_value());
  }

  options.on_error = OnError::kSkip;
  const Delivered skipped = Deliver({3, 64}, db.data_file(), options);
  for (const auto& error : skipped.errors) REQUIRE_FALSE(error.has_value());
  CHECK(skipped.skipped_count == 1);
  expected.erase(123);
  CHECK((skipped.records == expected));
}

// The cursor visits every host and brings the reason. Locations come from one host alone, which
// detects that another host is gone.
TEST_CASE("Where hosts wait for each other, what stops one stops all, and none waits for ever",
          "[loader][fault]") {
  const Strategy strategy = GENERATE(Strategy::kLmmDm, Strategy::kLmmDio);
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = strategy;
  options.global_batch_size = 40;
  options.max_batches = 400;  // more than fit into memory
  options.memory_budget_bytes = 1 << 20;
  const auto expected = Expected(db.data_file(), options);
  const uint64_t page = SpoilPageOf(db.data_file(), expected.at(123).second, 8);
  const Delivered raised = Deliver({6, 2}, db.data_file(), options);
  int finders = 0;
  for (const auto& error : raised.errors) {
    REQUIRE(error.has_value());
    INFO(error->message());
    if (strategy == Strategy::kLmmDm) {
      CHECK(error->message().find(std::to_string(page)) != std::string::npos);
    }
    if (error->code() == ErrorCode::kCorruption) ++finders;
  }
  CHECK(finders >= 1);  // in a later epoch another host gets the record
}

TEST_CASE("A host that closes early leaves a shared walk to the others", "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 6000; ++i) db.Put(fmt::format("{:06}", i), std::string(300, 'v'));
  db.Commit();  // more leaves than three hosts walk in their first round
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.global_batch_size = 50;
  options.max_batches = 120;
  for (int leaver = 0; leaver < 3; ++leaver) {
    std::vector<int> batches(3);
    ranks::RunAsThreads({3, 1}, [&](ranks::Group& group) {
      auto loader = load::Loader::Open(group, db.data_file().string(), options);
      if (!loader) std::terminate();
      int& got = batches[static_cast<size_t>(group.rank())];
      for (Result<bool> found = true; found && *found;) {
        if (group.rank() == leaver && got == 1) return;
        found = (*loader)->Next();
        if (found && *found) ++got;
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(batches[static_cast<size_t>(rank)] == (rank == leaver ? 1 : 120));
    }
  }
}

TEST_CASE("A damaged leaf page ends a shared walk on every host, none waits for ever",
          "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 6000; ++i) db.Put(fmt::format("{:06}", i), fmt::format("{:0300}", i));
  db.Commit();
  const uint64_t page = SpoilPageOf(db.data_file(), fmt::format("{:0300}", 4000).substr(236), 16);
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.global_batch_size = 50;
  options.max_batches = 120;
  const Delivered raised = Deliver({3, 1}, db.data_file(), options);
  for (const auto& error : raised.errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::kCorruption);
    CHECK(error->message().find(std::to_string(page)) != std::string::npos);
  }
}

TEST_CASE("A file that is cut short while it is read is an error on every rank",
          "[loader][fault]") {
  // Strategies with a map may reach the new end during a copy (docs/loader.md "Failures").
  for (const file::EngineKind engine : {file::EngineKind::kPread, file::EngineKind::kUring}) {
    const TempDir dir;
    TinyDb db(dir.path());
    FillOverflow(db);
    db.Commit();
    LoaderOptions options;
    options.strategy = Strategy::kScan;
    options.engine = engine;
    options.global_batch_size = 10;
    options.memory_budget_bytes = 1 << 20;  // so that reading cannot run far ahead
    ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
      const auto loader = load::Loader::Open(group, db.data_file().string(), options);
      if (!loader) std::terminate();
      const Result<bool> first = (*loader)->Next();
      if (!first) std::terminate();
      if (!group.Barrier()) std::terminate();
      if (group.rank() == 0) std::filesystem::resize_file(db.data_file(), 16 * kPageBytes);
      Result<bool> found = true;
      for (int i = 0; i < 100'000 && found; ++i) found = (*loader)->Next();
      if (found) std::terminate();  // an endless stream of missing records
      const Result<bool> again = (*loader)->Next();
      if (again || again.error().message() != found.error().message()) std::terminate();
    });
  }
}

TEST_CASE("A file that is cut short between batches in place is an error on every rank",
          "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.global_batch_size = 10;
  options.max_batches = 2;
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    const auto loader = load::Loader::Open(group, db.data_file().string(), options);
    if (!loader || (*loader)->Describe().find("in place") == std::string::npos) std::terminate();
    if (!(*loader)->Next()) std::terminate();
    // Wait until the reader has ended: it touches the map, and would get SIGBUS. With two batches
    // it needs a few milliseconds of processor time.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (!group.Barrier()) std::terminate();
    if (group.rank() == 0) std::filesystem::resize_file(db.data_file(), 16 * kPageBytes);
    if (!group.Barrier()) std::terminate();
    const Result<bool> found = (*loader)->Next();
    if (found || (found.error().code() != ErrorCode::kStale &&
                  found.error().code() != ErrorCode::kPeerFailed)) {
      std::terminate();
    }
  });
}

TEST_CASE("A commit while the file is read is told at the end of the epoch", "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.global_batch_size = 10;
  options.memory_budget_bytes = 1 << 20;
  const auto group = ranks::SoloGroup();
  const auto loader = load::Loader::Open(*group, db.data_file().string(), options);
  REQUIRE(loader.has_value());
  REQUIRE((*loader)->Next().has_value());
  db.Put("zz", "one more").Commit();
  Result<bool> found = true;
  for (int i = 0; i < 1000 && found; ++i) found = (*loader)->Next();
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code() == ErrorCode::kStale);
}

TEST_CASE("A pinned snapshot outlives a writer that replaces everything", "[loader][fault]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.snapshot = load::SnapshotMode::kPinned;
  options.global_batch_size = 10;
  options.max_batches = 30;
  options.memory_budget_bytes = 1 << 20;
  const auto expected = Expected(db.data_file(), options);
  const auto group = ranks::SoloGroup();
  const auto loader = load::Loader::Open(*group, db.data_file().string(), options);
  REQUIRE(loader.has_value());
  CHECK(load::Loader::Open(*group, db.data_file().string(), options).error().code() ==
        ErrorCode::kInvalidArgument);
  uint64_t records = 0;
  for (int round = 0; round < 30; ++round) {
    if (round < 8) {
      for (int i = 0; i < 300; i += 3) {
        db.Put(expected.at(static_cast<uint64_t>(i)).first, std::string(3080, 'x'));
      }
      db.Commit();
    }
    const Result<bool> found = (*loader)->Next();
    REQUIRE(found.has_value());
    const load::Batch& batch = (*loader)->batch();
    for (size_t i = 0; i < batch.record_count(); ++i, ++records) {
      const Bytes value = batch.value(i);
      const std::string text(reinterpret_cast<const char*>(value.data()), value.size());
      REQUIRE((text == expected.at(batch.position(i)).second));
    }
  }
  CHECK(records == 300);
}

TEST_CASE("Ranks may leave at any time and the others go on", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOverflow(db);
  db.Commit();
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.global_batch_size = 16;
  options.memory_budget_bytes = 1 << 20;
  ranks::RunAsThreads({4, 64}, [&](ranks::Group& group) {
    const auto loader = load::Loader::Open(group, db.data_file().string(), options);
    if (!loader) std::terminate();
    // The reader leaves first, right after Open; the last rank reads several epochs.
    for (int i = 0; i < group.rank() * 25; ++i) {
      if (!(*loader)->Next()) std::terminate();
    }
  });
  SUCCEED();
}

// The notes of four ranks on two hosts whose windows all come from `hook`.
template <typename Say>
std::vector<std::string> HearOfWindows(const ranks::HookedGroup::Hook& hook, const Say& say) {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 100; ++i) db.Put(fmt::format("{:06}", i), "value");
  db.Commit();
  std::vector<std::string> heard(4);
  ranks::RunAsThreads({4, 2}, [&](ranks::Group& group) {
    ranks::HookedGroup hooked(group, hook);
    LoaderOptions options;
    options.strategy = Strategy::kScan;
    options.memory_budget_bytes = 3 << 20;
    auto opened = load::Loader::Open(hooked, db.data_file(), options);
    heard[static_cast<size_t>(group.rank())] = say(opened);
  });
  return heard;
}

TEST_CASE("A window that is refused is refused by the name of its option", "[loader][fault]") {
  const auto heard = HearOfWindows(
      [](ranks::Group& host, uint64_t bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
        if (bytes < 1 << 20) return host.AllocateShared(bytes);
        return Fail(ErrorCode::kResourceExhausted, "/dev/shm is too small: make it larger");
      },
      [](const auto& opened) { return opened ? "" : opened.error().message(); });
  for (const std::string& one : heard) {
    CHECK(one ==
          "memory_budget_bytes (--memory-budget-bytes) is 3145728: /dev/shm is too small: make it "
          "larger");
  }
}

// A smaller budget would not help.
TEST_CASE("A window that the system refuses is not the fault of its option", "[loader][fault]") {
  const auto heard = HearOfWindows(
      [](ranks::Group& host, uint64_t bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
        if (bytes < 1 << 20) return host.AllocateShared(bytes);
        return Fail(ErrorCode::kUnsupported, "memfd_create: Operation not permitted");
      },
      [](const auto& opened) { return opened ? "" : opened.error().message(); });
  for (const std::string& one : heard) {
    CHECK(one ==
          "the memory that the ranks of a host share: memfd_create: Operation not permitted");
  }
}

TEST_CASE("A window of another kind is noted once for each host", "[loader][fault]") {
  const auto heard = HearOfWindows(
      [](ranks::Group& host, uint64_t bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
        LMDBIO_TRY(auto memory, host.AllocateShared(bytes));
        return std::make_unique<ranks::NotedMemory>(std::move(memory), "memory of another kind");
      },
      [](const auto& opened) {
        return opened ? fmt::format("{}", fmt::join((*opened)->TakeNotes(), "; "))
                      : opened.error().message();
      });
  CHECK(heard ==
        std::vector<std::string>{"memory of another kind", "", "memory of another kind", ""});
}

}  // namespace
}  // namespace lmdbio::test
