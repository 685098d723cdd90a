// Goal: every engine fills every block with the bytes of the file, at any offset, of any size and
// for any number of blocks. It returns each block once. Method: every kind of engine, buffered and
// direct, with queues of several depths. The oracle is plain pread.
#include "lmdbio/file/blocks/block_engine.h"

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/io/cache_probe.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/support/catch.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kOddFileBytes = (5 << 20) + 1234;
constexpr size_t npos = std::string::npos;

const std::vector<EngineOptions>& AllOptions() {
  static const std::vector<EngineOptions> all = [] {
    std::vector<EngineOptions> options;
    for (const EngineKind kind : {EngineKind::kMmap, EngineKind::kPread, EngineKind::kUring}) {
      for (const CachePolicy cache :
           {CachePolicy::kBuffered, CachePolicy::kDirect, CachePolicy::kMixed}) {
        for (const uint32_t depth : {1U, 3U, 32U}) options.push_back({kind, cache, depth, {}});
      }
    }
    return options;
  }();
  return all;
}

std::string Name(const EngineOptions& options) {
  return std::string(EngineKindName(options.kind)) + ", " + CachePolicyName(options.cache) + ", " +
         std::to_string(options.queue_depth) + " deep";
}

TEST_CASE("Every engine fills every block as pread does", "[io][engine]") {
  const EngineFile file(kOddFileBytes);
  uint64_t seed = 0;
  for (EngineOptions options : AllOptions()) {
    for (const bool is_registered : {false, true}) {
      test::Random random(++seed);
      BlockList blocks(16 << 20);
      blocks.AddRandom(random, kOddFileBytes, 150);
      options.memory = is_registered ? blocks.memory() : MutableBytes();
      INFO(Name(options) << (is_registered ? ", registered" : "") << ", seed " << seed);
      const auto engine = OpenOrThrow(file.path(), options);
      REQUIRE(engine->Start(blocks.reads()));
      CHECK(engine->outstanding() == blocks.reads().size());
      CHECK(Drain(*engine).empty());
      CHECK(blocks.HoldWhat(file));
      CHECK(engine->counters().bytes == blocks.bytes());
      CHECK(engine->counters().retry_count == 0);
    }
  }
}

TEST_CASE("Every engine reads up to the end of the file and not beyond it", "[io][engine]") {
  const EngineFile file(kOddFileBytes);
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    BlockList blocks(5 << 20);
    const uint64_t last_page = kOddFileBytes / kPageBytes * kPageBytes;
    blocks.Add(kOddFileBytes - 1, 1)
        .Add(kOddFileBytes, 0)
        .Add(last_page, kOddFileBytes - last_page);
    blocks.Add(kOddFileBytes - kBlockBytesMax, kBlockBytesMax, 7).Add(0, 0);
    const auto engine = OpenOrThrow(file.path(), options);
    REQUIRE(engine->Start(blocks.reads()));
    CHECK(Drain(*engine).empty());
    CHECK(blocks.HoldWhat(file));

    BlockList behind(5 << 20);
    behind.Add(kOddFileBytes, 1).Add(kOddFileBytes - 1, 2).Add(uint64_t{1} << 40, 4096);
    behind.Add(~uint64_t{0}, 1).Add(~uint64_t{0} - 4095, 4096).Add(uint64_t{1} << 63, 4096);
    behind.Add(last_page, 2 * kPageBytes).Add(0, 4096);
    REQUIRE(engine->Start(behind.reads()));
    const auto failures = Drain(*engine);
    CHECK(failures.size() == behind.reads().size() - 1);
    for (const auto& [tag, message] : failures) {
      CHECK_THAT(message, StartsWith(file.path() + ": "));
      const std::string offset = std::to_string(behind.reads()[tag].offset);
      CHECK_THAT(message, ContainsSubstring(" at " + offset) ||
                              ContainsSubstring(" at offset " + offset) ||
                              ContainsSubstring(" at byte " + std::to_string(kOddFileBytes)));
    }
  }
}

TEST_CASE("Every engine reports a truncated file", "[io][engine][fault]") {
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    const EngineFile file(1 << 20);
    BlockList blocks(2 << 20);
    for (uint64_t offset = 0; offset < (1 << 20); offset += 64 << 10) blocks.Add(offset, 64 << 10);
    const auto engine = OpenOrThrow(file.path(), options);
    REQUIRE(engine->Start(blocks.reads()));
    REQUIRE(Drain(*engine).empty());
    fs::resize_file(file.path(), 200'000);
    REQUIRE(engine->Start(blocks.reads()));
    uint64_t failed = 0;
    while (engine->outstanding() > 0) {
      const auto done = engine->WaitSome();
      REQUIRE(done);
      for (const BlockDone& block : *done) {
        const uint64_t offset = blocks.reads()[block.tag].offset;
        REQUIRE(block.status.has_value() == (offset + (64 << 10) <= 200'000));
        if (block.status) continue;
        ++failed;
        CHECK(block.status.error().code() == ErrorCode::kCorruption);
        CHECK_THAT(block.status.error().message(),
                   StartsWith(file.path() + ": the file ends at byte "));
      }
    }
    CHECK(failed == 13);
  }
}

TEST_CASE("Blocks may be started while others are in flight", "[io][engine]") {
  const EngineFile file(kOddFileBytes);
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    test::Random random(11);
    BlockList blocks(16 << 20);
    blocks.AddRandom(random, kOddFileBytes, 200);
    const std::span<const BlockRead> reads = blocks.reads();
    const auto engine = OpenOrThrow(file.path(), options);
    std::set<uint64_t> tags;
    size_t started = 0;
    while (started < reads.size() || engine->outstanding() > 0) {
      const size_t count = std::min<size_t>(random.Below(10), reads.size() - started);
      const auto limits = {BlockEngine::kNoLimit, std::chrono::milliseconds(0),
                           std::chrono::milliseconds(1)};
      const auto limit = *(limits.begin() + random.Below(limits.size()));
      const auto done = random.Below(4) == 0 ? engine->WaitSome(limit) : engine->Poll();
      REQUIRE(done);
      REQUIRE(engine->Start(reads.subspan(started, count)));  // must not change done blocks
      started += count;
      for (const BlockDone& block : *done) {
        CHECK(block.status);
        CHECK(tags.insert(block.tag).second);
      }
    }
    CHECK(tags.size() == reads.size());
    CHECK(blocks.HoldWhat(file));
  }
}

// Oracle: the kernel's count of cached pages of the file.
TEST_CASE("An engine without read-ahead brings only the requested pages into the page cache",
          "[io][engine]") {
  constexpr uint64_t asked_bytes = 256 << 10;
  for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
    for (const bool reads_ahead : {false, true}) {
      const EngineFile file(16 << 20);
      INFO(EngineKindName(kind) << (reads_ahead ? ", may read ahead" : ", must not read ahead"));
      const UniqueFd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
      ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
      if (ProbeCache(file.path())->share > 0) {
        WARN("this file system cannot drop the cached pages of a file");
        return;
      }
      EngineOptions options{kind, CachePolicy::kBuffered, 1, {}};
      options.reads_ahead = reads_ahead;
      // Large blocks, and adjacent small blocks that are announced together.
      BlockList blocks(1 << 20);
      for (uint64_t at = 0; at < asked_bytes / 2; at += 64 << 10) blocks.Add(at, 64 << 10);
      for (uint64_t at = 0; at < asked_bytes / 2; at += 4096) blocks.Add((8 << 20) + at, 4096);
      const auto engine = OpenOrThrow(file.path(), options);
      REQUIRE(engine->Start(blocks.reads()));
      REQUIRE(Drain(*engine).empty());
      CHECK(blocks.HoldWhat(file));
      // Fewer pages if another process has dropped the caches meanwhile.
      if (!reads_ahead) CHECK(ProbeCache(file.path())->share * (16 << 20) <= asked_bytes);
    }
  }
}

// Oracle: the engine's own account of direct reads, and the kernel's count of cached pages.
TEST_CASE("A mixed engine takes cached blocks from the page cache and reads the others around it",
          "[io][engine]") {
  constexpr uint64_t kBytes = 8 << 20;
  for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
    const EngineFile file(kBytes);
    INFO(EngineKindName(kind));
    const UniqueFd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
    std::vector<std::byte> cached(3 << 20);
    REQUIRE(::pread(fd.get(), cached.data(), cached.size(), 1 << 20) == 3 << 20);
    const CacheProbe before = *ProbeCache(file.path());
    const auto engine = OpenOrThrow(file.path(), {kind, CachePolicy::kMixed, 4, {}});
    if (!before.is_counted || before.share > 0.375 || engine->Describe().find("mixed") == npos) {
      WARN(
          "skipped: no counted pages or no direct reads here, or the file system keeps files "
          "cached");
      return;
    }
    BlockList blocks(2 * kBytes);
    // Blocks of 1.5 MiB, so some of them are cached in part.
    for (uint64_t at = 0; at < kBytes; at += 3 << 19) {
      blocks.Add(at, std::min<uint64_t>(3 << 19, kBytes - at));
    }
    REQUIRE(engine->Start(blocks.reads()));
    REQUIRE(Drain(*engine).empty());
    // Nothing else was brought into the page cache. (The oracle's reads will be.)
    CHECK(ProbeCache(file.path())->share <= before.share);
    CHECK(blocks.HoldWhat(file));
    const EngineCounters counters = engine->counters();
    CHECK(counters.bytes == kBytes);
    // More if another process has dropped the caches meanwhile.
    CHECK(counters.direct_bytes >= kBytes - cached.size());
    if (before.share == 0.375) CHECK(counters.direct_bytes < kBytes);
  }
}

TEST_CASE("WaitSome without outstanding blocks does not sleep", "[io][engine]") {
  for (const uint64_t size_bytes : {uint64_t{0}, uint64_t{5000}}) {
    const EngineFile file(size_bytes);
    for (const EngineOptions& options : AllOptions()) {
      INFO(Name(options) << ", " << size_bytes << " bytes");
      const auto engine = OpenOrThrow(file.path(), options);
      CHECK(engine->WaitSome()->empty());
      CHECK(engine->Poll()->empty());
      CHECK(engine->Start({}));
      CHECK(engine->WaitSome()->empty());
      BlockList blocks(0);
      REQUIRE(engine->Start(blocks.Add(0, 0).reads()));
      CHECK(Drain(*engine).empty());
      CHECK(engine->counters().bytes == 0);
    }
  }
}

TEST_CASE("An engine may be destroyed with blocks outstanding", "[io][engine]") {
  const EngineFile file(kOddFileBytes);
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    BlockList blocks(24 << 20);
    for (int i = 0; i < 20; ++i) blocks.Add(static_cast<uint64_t>(i) * kPageBytes, 1 << 20);
    auto engine = OpenOrThrow(file.path(), options);
    REQUIRE(engine->Start(blocks.reads()));
    if (options.queue_depth == 3) CHECK(engine->WaitSome());
    engine.reset();
    // A late write to a destination has this time to be detected.
    blocks.Erase();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(blocks.IsErased());
  }
}

TEST_CASE("One thread may start blocks and end, and another may await them",
          "[io][engine][threads]") {
  const EngineFile file(kOddFileBytes);
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    test::Random random(5);
    BlockList blocks(16 << 20);
    blocks.AddRandom(random, kOddFileBytes, 100);
    const auto engine = OpenOrThrow(file.path(), options);
    bool is_started = false;
    std::thread([&] { is_started = engine->Start(blocks.reads()).has_value(); }).join();
    REQUIRE(is_started);
    CHECK(Drain(*engine).empty());
    CHECK(blocks.HoldWhat(file));
  }
}

TEST_CASE("An engine counts its reads", "[io][engine]") {
  const EngineFile file(kOddFileBytes);
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    BlockList blocks(1 << 20);
    blocks.Add(0, 8 * kPageBytes).Add(kPageBytes + 1, 8 * kPageBytes, 1).Add(9, kPageBytes, 8);
    const auto engine = OpenOrThrow(file.path(), options);
    REQUIRE(engine->Start(blocks.reads()));
    CHECK(Drain(*engine).empty());
    const EngineCounters counters = engine->counters();
    CHECK(counters.bytes == blocks.bytes());
    CHECK(counters.retry_count == 0);
    if (engine->Describe() == Name(options) && options.cache == CachePolicy::kDirect) {
      // The second block has a partial page at each end. The third is not aligned, except perhaps
      // to a unit smaller than a page.
      CHECK(counters.direct_bytes >= 15 * kPageBytes);
      CHECK(counters.request_count >= 5);
      CHECK(engine->TakeNotes().empty());
    } else if (options.cache != CachePolicy::kMixed) {
      CHECK(counters.direct_bytes == 0);
      CHECK(counters.request_count == 3);
    }
  }
}

TEST_CASE("OpenBlockEngine names the path that it cannot open", "[io][engine]") {
  const EngineFile file(0);
  for (EngineOptions options : AllOptions()) {
    INFO(Name(options));
    const std::string missing = file.path() + "-missing";
    const auto engine = OpenBlockEngine(missing, options);
    REQUIRE_FALSE(engine);
    CHECK(engine.error().code() == ErrorCode::kNotFound);
    CHECK_THAT(engine.error().message(), StartsWith(missing + ": "));
    options.queue_depth = 0;
    CHECK(OpenBlockEngine(file.path(), options).error().code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("OpenBlockEngine finds the data file of a directory", "[io][engine]") {
  const EngineFile file(5000);
  const fs::path directory = fs::path(file.path()).parent_path();
  fs::rename(file.path(), directory / "data.mdb");
  for (const EngineOptions& options : AllOptions()) {
    INFO(Name(options));
    BlockList blocks(2 * kPageBytes);
    const auto engine = OpenOrThrow(directory, options);
    REQUIRE(engine->Start(blocks.Add(1, 4999).reads()));
    CHECK(Drain(*engine).empty());
    CHECK(blocks.HoldWhat(file));
  }
}

TEST_CASE("MmapEngine notes that it has no direct reads", "[io][engine]") {
  const EngineFile file(5000);
  const auto engine = OpenOrThrow(file.path(), {EngineKind::kMmap, CachePolicy::kDirect, 1, {}});
  CHECK(engine->Describe() == "mmap, buffered");
  CHECK(engine->TakeNotes() ==
        std::vector<std::string>{file.path() +
                                 ": mmap has no direct reads: reading through the page cache"});
  CHECK(engine->TakeNotes().empty());
}

TEST_CASE("The event of an engine wakes a poller for each block", "[io][engine]") {
  const EngineFile file(1 << 20);
  const auto kind = GENERATE(EngineKind::kUring, EngineKind::kPread);
  CAPTURE(EngineKindName(kind));
  const auto engine = OpenOrThrow(file.path(), {.kind = kind, .queue_depth = 2});
  BlockList blocks(1 << 20);
  for (uint64_t i = 0; i < 20; ++i) blocks.Add(i * 5000, 3000);
  uint64_t got = 0;
  for (const bool is_polled_first : {true, false}) {
    if (is_polled_first) REQUIRE(engine->event() >= 0);
    REQUIRE(engine->Start(blocks.reads()));
    while (engine->outstanding() > 0) {
      pollfd polled{engine->event(), POLLIN, 0};
      REQUIRE(::poll(&polled, 1, 30'000) == 1);
      const auto done = engine->Poll();
      REQUIRE(done);
      got += done->size();
    }
  }
  CHECK(got == 40);
  CHECK(blocks.HoldWhat(file));
  CHECK(OpenOrThrow(file.path(), {.kind = EngineKind::kMmap})->event() == -1);
}

}  // namespace
}  // namespace lmdbio::file
