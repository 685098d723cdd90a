// Goal: with any readers and options, all ranks together get the sequence of liblmdb's cursor, each
// record once and on the rank that owns it.
#include "lmdbio/load/loader/loader.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/open_decision.h"
#include "tests/load/loader/matrix_share.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;
using load::Share;
using load::Strategy;
using load::Tail;

struct DatabaseKind {
  const char* name;
  void (*fill)(TinyDb& db);
  const char* database;
};

constexpr std::array<DatabaseKind, 4> kKinds = {{{"inline", &FillInline, ""},
                                                 {"overflow", &FillOverflow, ""},
                                                 {"mixed", &FillMixed, ""},
                                                 {"duplicates", &FillDuplicates, "duplicates"}}};

std::filesystem::path Make(const TempDir& dir, const DatabaseKind& kind) {
  TinyDb db(dir.path());
  kind.fill(db);
  db.Commit();
  file::RecordProvenanceOptions provenance;
  provenance.path = dir.path().string();
  provenance.database_name = kind.database;
  REQUIRE(file::RecordProvenance(provenance).has_value());
  return db.data_file();
}

void CheckStream(ranks::ThreadRanks ranks, const std::filesystem::path& data_file,
                 const LoaderOptions& options) {
  const Delivered got = Deliver(ranks, data_file, options);
  for (const auto& error : got.errors) {
    INFO((error ? error->message() : ""));
    REQUIRE_FALSE(error.has_value());
  }
  CHECK(got.twice_count == 0);
  CHECK(got.foreign_count == 0);
  CHECK(got.skipped_count == 0);
  CHECK((got.records == Expected(data_file, options)));
}

TEST_CASE("Every strategy delivers liblmdb's sequence at any number of ranks", "[loader]") {
  MatrixShare matrix(3);
  for (const DatabaseKind& kind : kKinds) {
    const TempDir dir;
    const std::filesystem::path data_file = Make(dir, kind);
    for (const auto& row : load::kStrategies) {
      for (const int ranks : {1, 2, 3, 5, 8}) {
        for (const Share share : {Share::kBlock, Share::kRoundRobin}) {
          if (matrix.LeavesOut()) continue;
          INFO(kind.name << ", " << row.name << ", " << ranks << " ranks");
          LoaderOptions options;
          options.database_name = kind.database;
          options.strategy = row.strategy;
          options.share = share;
          options.global_batch_size = 96;
          options.max_batches = 11;
          options.readers_per_host = ranks > 2 ? 2 : 1;
          CheckStream({ranks, ranks == 5 ? 2 : 64}, data_file, options);
        }
      }
    }
  }
}

// The times of lmdb are estimated from some of the records, so the total must still be true.
TEST_CASE("The baseline's times of stepping and touching are parts of its whole time", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[1]);
  LoaderOptions options;
  options.strategy = Strategy::kLmdb;
  options.global_batch_size = GENERATE(1U, 50U);
  options.max_batches = 200;
  const auto start = std::chrono::steady_clock::now();
  const Delivered got = Deliver({1, 64}, data_file, options);
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(got.counters.locate_s >= 0);  // 0: a thread switch within a timed touch
  CHECK(got.counters.read_s > 0);
  CHECK(got.counters.locate_s + got.counters.read_s < wall_s);
}

TEST_CASE("Engines, cache policies and block sizes do not show in what is delivered", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[2]);
  for (const file::EngineKind engine :
       {file::EngineKind::kMmap, file::EngineKind::kPread, file::EngineKind::kUring}) {
    for (const file::CachePolicy cache :
         {file::CachePolicy::kBuffered, file::CachePolicy::kDirect}) {
      for (const uint64_t block_bytes : {4096U, 1U << 20}) {
        INFO(file::EngineKindName(engine) << ", blocks of " << block_bytes);
        LoaderOptions options;
        options.strategy = Strategy::kScan;
        options.engine = engine;
        options.cache = cache;
        options.block_bytes = block_bytes;
        options.queue_depth = 3;
        options.global_batch_size = 50;
        options.max_batches = 20;
        CheckStream({2, 64}, data_file, options);
      }
    }
  }
}

TEST_CASE("Tails, odd batches and little memory keep the sequence", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[0]);  // 700 records
  for (const Tail tail : {Tail::kWrap, Tail::kShort, Tail::kDrop}) {
    for (const uint64_t batch_size : {1U, 3U, 48U, 65U, 64U, 699U, 700U, 2101U, 2102U}) {
      if (tail == Tail::kDrop && batch_size > 700) continue;
      const Strategy strategy = batch_size % 2 == 0 ? Strategy::kScan : Strategy::kLmdb;
      INFO("tail " << static_cast<int>(tail) << ", batches of " << batch_size);
      LoaderOptions options;
      options.strategy = strategy;
      options.tail = tail;
      options.global_batch_size = batch_size;
      options.max_batches = batch_size < 64 ? 800 : 40;
      options.memory_budget_bytes = 2 << 20;  // many slots, in memory that is reused often
      CheckStream({4, 64}, data_file, options);
    }
  }
}

TEST_CASE("Chunked order refuses options that make no sense with it", "[loader]") {
  LoaderOptions options;
  options.order = load::Order::kChunked;
  options.group_batches = 1024;
  CHECK(load::CheckOptions(options).has_value());
  options.share = Share::kRoundRobin;
  CHECK(load::CheckOptions(options).error().message().find("round-robin") != std::string::npos);
  options.share = Share::kBlock;
  options.group_batches = 1025;
  CHECK(load::CheckOptions(options).error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("A chunk that does not fit is refused, and says what to do", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[1]);  // 300 records of 3,080 bytes
  LoaderOptions options;
  options.strategy = Strategy::kScan;
  options.order = load::Order::kChunked;
  options.group_batches = 60;
  options.global_batch_size = 5;
  options.max_batches = 60;
  options.memory_budget_bytes = 1 << 20;
  const Delivered got = Deliver({2, 64}, data_file, options);
  REQUIRE(got.errors[0].has_value());
  CHECK(got.errors[0]->code() == ErrorCode::kResourceExhausted);
  INFO(got.errors[0]->message());
  CHECK(got.errors[0]->message().find("reduce group_batches") != std::string::npos);
  options.group_batches = 0;  // as many as hold 32 MiB: all of them
  options.memory_budget_bytes = 64 << 20;
  const Delivered whole = Deliver({2, 64}, data_file, options);
  REQUIRE(!whole.errors[0].has_value());
  options.group_batches = 60;
  CHECK(whole.records == Expected(data_file, options));
}

TEST_CASE("Open refuses what cannot be served, on every rank", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[0]);
  const auto error_of = [&](const std::filesystem::path& path, const LoaderOptions& options) {
    Delivered got = Deliver({3, 64}, path, options);
    CHECK(got.records.empty());
    for (const auto& error : got.errors) REQUIRE(error.has_value());
    CHECK(got.errors[1]->code() == ErrorCode::kPeerFailed);
    return std::move(*got.errors[0]);
  };
  CHECK(error_of(dir.path() / "missing", {}).code() == ErrorCode::kNotFound);
  LoaderOptions drop;
  drop.tail = Tail::kDrop;
  drop.global_batch_size = 701;
  CHECK(error_of(data_file, drop).code() == ErrorCode::kInvalidArgument);
  const TempDir empty_dir;
  TinyDb(empty_dir.path()).Put("a", "b").Delete("a").Commit();
  CHECK(error_of(empty_dir.path(), {}).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("Ranks with different options are told which option and which rank", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[0]);
  ranks::RunAsThreads({3, 64}, [&](ranks::Group& group) {
    LoaderOptions options;
    if (group.rank() == 2) options.global_batch_size = 65;
    const auto loader = load::Loader::Open(group, data_file.string(), options);
    if (loader) std::terminate();  // Catch's assertions are not for several threads
    if (loader.error().message().find("rank 2") == std::string::npos) std::terminate();
    if (loader.error().message().find("global_batch_size") == std::string::npos) std::terminate();
  });
}

TEST_CASE("Provenance of another state is refused, and auto scans instead", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[0]);
  TinyDb(dir.path()).Put("zz", "one more").Commit();
  LoaderOptions options;
  options.max_batches = 12;
  options.strategy = Strategy::kLmmDioProv;
  const Delivered refused = Deliver({2, 64}, data_file, options);
  REQUIRE(refused.errors[0].has_value());
  CHECK(refused.errors[0]->code() == ErrorCode::kStale);
  options.strategy = Strategy::kAuto;
  const Delivered scanned = Deliver({2, 64}, data_file, options);
  REQUIRE_FALSE(scanned.errors[0].has_value());
  CHECK((scanned.records == Expected(data_file, options)));
  CHECK(std::count_if(scanned.notes.begin(), scanned.notes.end(), [](const std::string& note) {
          return note.find("using a page walk instead") != std::string::npos;
        }) == 1);
}

TEST_CASE("What is in the page cache is looked at in place, and read where that is not wanted",
          "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[1]);
  {
    std::ifstream stream(data_file, std::ios::binary);
    while (stream.ignore(1 << 20)) continue;
  }
  LoaderOptions options;
  options.global_batch_size = 7;
  options.max_batches = 100;
  const auto how = [&] {
    const auto group = ranks::SoloGroup();
    const auto loader = load::Loader::Open(*group, data_file.string(), options);
    REQUIRE(loader);
    std::string text = (*loader)->Describe();
    uint64_t bytes = 0;
    for (Result<bool> more = (*loader)->Next(); more && *more; more = (*loader)->Next()) {
      bytes = (*loader)->counters().bytes_read;
    }
    CHECK((bytes == 0) == (text.find("in place") != std::string::npos));
    return text;
  };
  CHECK(how() == "provenance; in place, in a map");
  CHECK((Deliver({3, 64}, data_file, options).records == Expected(data_file, options)));
  options.snapshot = load::SnapshotMode::kOptimistic;  // pages may change under a batch
  CHECK(how().find("in place") == std::string::npos);
  options.snapshot = load::SnapshotMode::kImmutable;
  options.allow_map = false;
  CHECK(how().find("pread, ") != std::string::npos);
  CHECK((Deliver({3, 64}, data_file, options).records == Expected(data_file, options)));
  options.allow_map = true;
  options.engine = file::EngineKind::kUring;
  CHECK(how().find("in place") == std::string::npos);
}

void FillLarge(TinyDb& db) {
  for (int i = 0; i < 2000; ++i)
    db.Put(fmt::format("{:06}", i), std::string(6000, static_cast<char>('a' + i % 26)));
}

// Reads a file into the page cache, and drops `bytes` of it from the middle on.
void CacheAllBut(const std::filesystem::path& data_file, uint64_t bytes) {
  std::ifstream stream(data_file, std::ios::binary);
  while (stream.ignore(1 << 20)) continue;
  const UniqueFd fd(::open(data_file.c_str(), O_RDONLY | O_CLOEXEC));
  ::fdatasync(fd.get());
  const auto middle = static_cast<off_t>(std::filesystem::file_size(data_file) / 2);
  ::posix_fadvise(fd.get(), middle, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

bool IsPartlyCached(const std::filesystem::path& data_file, double share_min) {
  const file::CacheProbe found = *file::ProbeCache(data_file);
  if (found.is_counted && found.share < 1 && found.share >= share_min) return true;
  WARN("skipped: the kernel does not count cached pages, or dropped too few or too many");
  return false;
}

// Goal: in place, blocks that the page cache lacks are read before their slot is announced.
TEST_CASE("Missing blocks of a file in place are read into the page cache", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, {"large", &FillLarge, ""});
  const auto size_bytes = std::filesystem::file_size(data_file);
  CacheAllBut(data_file, 256 << 10);
  if (!IsPartlyCached(data_file, 0.96)) return;
  LoaderOptions options;
  options.global_batch_size = 100;
  options.max_batches = 20;
  const Delivered delivered = Deliver({3, 64}, data_file, options);
  CHECK((delivered.records == Expected(data_file, options)));
  CHECK(delivered.counters.bytes_read >= 64 << 10);
  CHECK(delivered.counters.bytes_read < size_bytes / 2);  // it was used in place
  CHECK(delivered.counters.bytes_direct == 0);
}

// Goal: a shuffled stream of the whole file reads missing parts in pieces, not record by record.
TEST_CASE("Missing records of a shuffled file in place bring their neighbours", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, {"large", &FillLarge, ""});
  const uint64_t missing_bytes = std::filesystem::file_size(data_file) / 5;
  CacheAllBut(data_file, missing_bytes);
  if (!IsPartlyCached(data_file, 0.71)) return;
  LoaderOptions options;
  options.order = load::Order::kShuffle;
  options.block_bytes = 128 << 10;
  options.global_batch_size = 20;
  options.max_batches = 200;
  options.prefetch_batches = 1;  // slots of few records, which are not neighbours
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(load::Loader::Open(*solo, data_file.string(), options));
  if (loader->Describe().find("in place") == std::string::npos) {
    WARN("skipped: reads of this storage take 0.3 ms or more");
    return;
  }
  std::map<uint64_t, KeyValue> records;
  while (Good(loader->Next())) {
    const load::Batch& batch = loader->batch();
    for (size_t i = 0; i < batch.record_count(); ++i) {
      records[batch.position(i)] = {std::string(AsText(batch.key(i))),
                                    std::string(AsText(batch.value(i)))};
    }
  }
  CHECK((records == Expected(data_file, options)));
  CHECK(loader->counters().bytes_direct == 0);
  CHECK(loader->counters().bytes_read > missing_bytes / 2);
  // A record has 8 KiB. A few are read alone, because their piece is on the way for another slot.
  CHECK(loader->counters().read_requests < missing_bytes / (8 << 10) / 2);
}

// Goal: a rank that waits with a time limit loses no batch.
TEST_CASE("NextWithin comes back without a batch, and with it later", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[1]);
  constexpr uint64_t kBatchCount = 400;
  std::atomic<bool> is_stuck = false;
  std::array<std::vector<uint64_t>, 2> numbers;
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    LoaderOptions options;
    options.global_batch_size = 10;
    options.max_batches = kBatchCount;
    options.memory_budget_bytes = 1 << 20;
    options.allow_map = false;
    options.keep_bytes = -1;
    const auto loader = load::Loader::Open(group, data_file.string(), options);
    if (!loader) std::terminate();  // Catch's assertions are not for several threads
    auto& mine = numbers[static_cast<size_t>(group.rank())];
    if (group.rank() == 1) is_stuck.wait(false);
    while (true) {
      const auto step = (*loader)->NextWithin(std::chrono::milliseconds(20));
      if (!step) std::terminate();
      if (*step == load::Loader::Step::kEnd) break;
      if (*step == load::Loader::Step::kBatch) {
        mine.push_back((*loader)->batch().number());
      } else if ((*loader)->batch().record_count() > 0) {
        std::terminate();
      } else if (group.rank() == 0) {
        is_stuck = true;
        is_stuck.notify_all();
      }
    }
  });
  std::vector<uint64_t> all(kBatchCount);
  std::iota(all.begin(), all.end(), 0);
  CHECK(is_stuck);
  CHECK(numbers[0] == all);
  CHECK(numbers[1] == all);
}

TEST_CASE("A batch larger than the memory budget is refused with its size", "[loader]") {
  const TempDir dir;
  const std::filesystem::path data_file = Make(dir, kKinds[1]);
  LoaderOptions options;
  options.global_batch_size = 300;
  options.max_batches = 2;
  options.memory_budget_bytes = 1 << 20;
  options.allow_map = false;
  const Delivered got = Deliver({2, 64}, data_file, options);
  for (const auto& error : got.errors) REQUIRE(error.has_value());
  CHECK(got.errors[0]->code() == ErrorCode::kResourceExhausted);
  CHECK(got.errors[0]->message().find("memory_budget_bytes") != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::test
