// Goal: if the kernel or the file system refuses a call, the engine uses another one and reports it
// once. A failed read is reported for its block only. No call hangs, and no memory besides the
// destinations is written. Method: a child process with a filter that refuses system calls, or in
// which a failing descriptor replaces one of the engine.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/file/blocks/block_engine.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/file/io/holed_memory.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/in_child.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::CheckInChild;
using test::RefuseSystemCall;
using test::Verdict;

constexpr uint64_t kFileBytes = 1 << 20;

// Whether the engine reads the file as pread does.
bool ReadsRight(BlockEngine& engine, const EngineFile& file) {
  test::Random random(2);
  BlockList blocks(16 << 20);
  blocks.AddRandom(random, file.size_bytes(), 60);
  return engine.Start(blocks.reads()) && Drain(engine).empty() && blocks.HoldWhat(file);
}

// The descriptors of this process for `path`, with or without O_DIRECT.
std::set<int> DescriptorsOf(const std::string& path, CachePolicy cache) {
  std::set<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const int fd = std::stoi(entry.path().filename());
    const bool is_direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    if (fs::read_symlink(entry.path(), none) == path &&
        is_direct == (cache == CachePolicy::kDirect)) {
      found.insert(fd);
    }
  }
  return found;
}

// Replaces by `fd` the descriptors of `later` that are not in `before`.
void Replace(const std::set<int>& before, const std::set<int>& later, int fd) {
  for (const int engine_fd : later) {
    if (!before.contains(engine_fd)) ::dup2(fd, engine_fd);
  }
}

TEST_CASE("OpenBlockEngine falls back to pread if io_uring is refused", "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  // A sandbox may allow the setup of a ring and refuse its use.
  const long call = GENERATE(long{SYS_io_uring_setup}, long{SYS_io_uring_enter});
  const int error_number = GENERATE(EPERM, ENOSYS);
  CAPTURE(call, error_number);
  CheckInChild([&] {
    if (!RefuseSystemCall({call, error_number})) return Verdict::kCannotTell;
    const auto engine = OpenOrThrow(file.path(), {.kind = EngineKind::kUring});
    CHILD_CHECK(engine->Describe() == "pread, buffered, 32 deep");
    CHILD_CHECK(engine->TakeNotes() ==
                std::vector<std::string>{file.path() + ": io_uring is refused (" +
                                         std::strerror(error_number) + "): reading with pread"});
    CHILD_CHECK(engine->TakeNotes().empty());
    CHILD_CHECK(ReadsRight(*engine, file));
    return Verdict::kRight;
  });
}

TEST_CASE("UringEngine reads without registration if it is refused", "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_io_uring_register, EPERM})) return Verdict::kCannotTell;
    for (const CachePolicy cache : {CachePolicy::kBuffered, CachePolicy::kDirect}) {
      BlockList memory(1 << 20);
      const auto engine =
          OpenOrThrow(file.path(), {EngineKind::kUring, cache, 32, memory.memory()});
      CHILD_CHECK(engine->TakeNotes().empty());
      CHILD_CHECK(ReadsRight(*engine, file));
    }
    return Verdict::kRight;
  });
}

TEST_CASE("An engine reads through the page cache if O_DIRECT is refused at open",
          "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_openat, EINVAL, 2, O_DIRECT})) return Verdict::kCannotTell;
    for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
      const auto engine = OpenOrThrow(file.path(), {kind, CachePolicy::kDirect, 4, {}});
      CHILD_CHECK(engine->Describe() == std::string(EngineKindName(kind)) + ", buffered, 4 deep");
      CHILD_CHECK(ReadsRight(*engine, file));
      CHILD_CHECK(engine->counters().direct_bytes == 0);
      CHILD_CHECK(engine->TakeNotes() ==
                  std::vector<std::string>{file.path() +
                                           ": O_DIRECT is refused (Invalid argument): reading "
                                           "through the page cache"});
    }
    return Verdict::kRight;
  });
}

TEST_CASE("Direct reads are aligned to a page if the kernel reports no alignment",
          "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_statx, ENOSYS})) return Verdict::kCannotTell;
    for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
      const auto engine = OpenOrThrow(file.path(), {kind, CachePolicy::kDirect, 4, {}});
      const bool is_direct = engine->Describe().find("direct") != std::string::npos;
      CHILD_CHECK(ReadsRight(*engine, file));
      CHILD_CHECK((engine->counters().direct_bytes > 0) == is_direct);
    }
    return Verdict::kRight;
  });
}

TEST_CASE("After a refused direct read all reads go through the page cache",
          "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    // The ring would keep a registered file, so the replacement would have no effect.
    if (!RefuseSystemCall({SYS_io_uring_register, EPERM})) return Verdict::kCannotTell;
    for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
      const auto engine = OpenOrThrow(file.path(), {kind, CachePolicy::kDirect, 4, {}});
      const std::set<int> direct = DescriptorsOf(file.path(), CachePolicy::kDirect);
      if (direct.empty()) return Verdict::kCannotTell;
      // A file that root can open but not read.
      const UniqueFd refusing(::open("/proc/self/clear_refs", O_RDONLY | O_CLOEXEC));
      char byte = 0;
      if (::pread(refusing.get(), &byte, 1, 0) != -1 || errno != EINVAL) {
        return Verdict::kCannotTell;
      }
      Replace({}, direct, refusing.get());
      CHILD_CHECK(ReadsRight(*engine, file));
      CHILD_CHECK(engine->Describe() == std::string(EngineKindName(kind)) + ", buffered, 4 deep");
      CHILD_CHECK(engine->counters().direct_bytes == 0);
      CHILD_CHECK(engine->counters().retry_count > 0);
      CHILD_CHECK(engine->counters().retry_count <= 4);
      CHILD_CHECK(engine->TakeNotes().size() == 1);
      CHILD_CHECK(ReadsRight(*engine, file));
      CHILD_CHECK(engine->TakeNotes().empty());
    }
    return Verdict::kRight;
  });
}

TEST_CASE("A storage failure is reported with file and offset for each block",
          "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_io_uring_register, EPERM})) return Verdict::kCannotTell;
    for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
      const std::set<int> before = DescriptorsOf(file.path(), CachePolicy::kBuffered);
      const auto engine = OpenOrThrow(file.path(), {.kind = kind, .queue_depth = 4});
      // The memory of this process. Its first megabyte is not mapped, so reads give EIO.
      const UniqueFd failing(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
      char byte = 0;
      if (::pread(failing.get(), &byte, 1, 4096) != -1 || errno != EIO) {
        return Verdict::kCannotTell;
      }
      Replace(before, DescriptorsOf(file.path(), CachePolicy::kBuffered), failing.get());
      BlockList blocks(1 << 20);
      for (uint64_t i = 1; i <= 5; ++i) blocks.Add(4096 * i, 1000);
      CHILD_CHECK(engine->Start(blocks.reads()));
      const auto failures = Drain(*engine);
      CHILD_CHECK(failures.size() == 5);
      for (const auto& [tag, message] : failures) {
        CHILD_CHECK(message == file.path() + ": read of 1000 bytes at offset " +
                                   std::to_string(4096 * (tag + 1)) + ": Input/output error");
      }
      CHILD_CHECK(engine->counters().bytes == 0);
      CHILD_CHECK(engine->counters().request_count == 5 * kReadFailuresMax);
      CHILD_CHECK(engine->counters().retry_count == 5 * (kReadFailuresMax - 1));
    }
    return Verdict::kRight;
  });
}

// An engine that reads `memory` instead of the file, starting with the hole.
std::unique_ptr<BlockEngine> StartReading(const EngineFile& file, const HoledMemory& memory,
                                          BlockList& blocks, const EngineOptions& options) {
  const std::set<int> before = DescriptorsOf(file.path(), CachePolicy::kBuffered);
  std::unique_ptr<BlockEngine> engine = OpenOrThrow(file.path(), options);
  Replace(before, DescriptorsOf(file.path(), CachePolicy::kBuffered), memory.fd());
  blocks.Add(HoledMemory::kHole, HoledMemory::kBlockBytes);
  for (uint64_t i = 0; i < HoledMemory::kBlockCount; ++i) {
    blocks.Add(memory.Offset(i), HoledMemory::kBlockBytes);
  }
  if (!engine->Start(blocks.reads())) throw std::runtime_error("no start");
  return engine;
}

// Waits for all blocks except the hole. Returns whether exactly these are done and correct.
bool ReadsAllButTheHole(BlockEngine& engine, const HoledMemory& memory, const BlockList& blocks) {
  for (uint64_t left = HoledMemory::kBlockCount; left > 0;) {
    const auto done = engine.WaitSome();
    if (!done || done->size() > left) return false;
    left -= done->size();
    for (const BlockDone& block : *done) {
      if (!block.status || block.tag == 0) return false;
      const Bytes bytes = blocks.reads()[block.tag].destination;
      if (test::AsText(bytes) != memory.Content(block.tag - 1)) return false;
    }
  }
  return engine.outstanding() == 1;
}

TEST_CASE("A failed read that waits for its retry does not delay other reads",
          "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  const EngineKind kind = GENERATE(EngineKind::kPread, EngineKind::kUring);
  const uint32_t depth = GENERATE(1, 4);
  CAPTURE(EngineKindName(kind), depth);
  CheckInChild([&] {
    const HoledMemory memory;
    if (!memory.Works() || !RefuseSystemCall({SYS_io_uring_register, EPERM})) {
      return Verdict::kCannotTell;
    }
    BlockList blocks(1 << 20);
    // The retry is not due during the test.
    const auto engine =
        StartReading(file, memory, blocks,
                     {.kind = kind, .queue_depth = depth, .retry_pause = std::chrono::hours(1)});
    CHILD_CHECK(ReadsAllButTheHole(*engine, memory, blocks));
    CHILD_CHECK(engine->Poll()->empty());
    CHILD_CHECK(engine->WaitSome(std::chrono::milliseconds(1))->empty());
    CHILD_CHECK(engine->outstanding() == 1);
    CHILD_CHECK(engine->counters().request_count == HoledMemory::kBlockCount + 1);
    return Verdict::kRight;  // the destructor does not wait for the retry, either
  });
}

TEST_CASE("A read that fails temporarily is retried until it succeeds", "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  const EngineKind kind = GENERATE(EngineKind::kPread, EngineKind::kUring);
  const uint32_t depth = GENERATE(1, 4);
  CAPTURE(EngineKindName(kind), depth);
  CheckInChild([&] {
    HoledMemory memory;
    if (!memory.Works() || !RefuseSystemCall({SYS_io_uring_register, EPERM})) {
      return Verdict::kCannotTell;
    }
    BlockList blocks(1 << 20);
    // Retries for 10 s, the limit for the other reads.
    const auto engine = StartReading(
        file, memory, blocks,
        {.kind = kind, .queue_depth = depth, .retry_pause = std::chrono::milliseconds(500)});
    CHILD_CHECK(ReadsAllButTheHole(*engine, memory, blocks));
    CHILD_CHECK(memory.Fill());
    CHILD_CHECK(Drain(*engine).empty());
    const Bytes hole = blocks.reads()[0].destination;
    CHILD_CHECK(std::ranges::all_of(hole, [](std::byte byte) { return byte == std::byte(); }));
    CHILD_CHECK(engine->counters().retry_count >= 1);
    return Verdict::kRight;
  });
}

TEST_CASE("A failure of the ring is reported and leaves no read in flight", "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  for (const CachePolicy cache : {CachePolicy::kBuffered, CachePolicy::kDirect}) {
    CheckInChild([&] {
      BlockList blocks(16 << 20);
      test::Random random(4);
      blocks.AddRandom(random, kFileBytes, 60);
      auto engine = OpenOrThrow(file.path(), {EngineKind::kUring, cache, 4, {}});
      if (!engine->Describe().starts_with("uring")) return Verdict::kCannotTell;
      CHILD_CHECK(engine->Start(blocks.reads()));
      if (!RefuseSystemCall({SYS_io_uring_enter, EBADR})) return Verdict::kCannotTell;
      Result<std::span<BlockDone>> done = engine->WaitSome();
      while (done) done = engine->WaitSome();  // blocks that completed before the failure
      CHILD_CHECK(done.error().code() == ErrorCode::kIo);
      const std::string message = file.path() + ": io_uring_enter: Invalid request descriptor";
      CHILD_CHECK(done.error().message() == message);
      CHILD_CHECK(engine->outstanding() > 0);
      CHILD_CHECK(done.error().error_number() == EBADR);
      CHILD_CHECK(engine->Poll().error().message() == message);
      CHILD_CHECK(engine->Poll().error().error_number() == EBADR);
      CHILD_CHECK(engine->Start(blocks.reads()).error().message() == message);
      engine.reset();
      return Verdict::kRight;
    });
  }
}

TEST_CASE("PreadEngine takes over no block if it can start no thread", "[io][engine][fault]") {
  const EngineFile file(kFileBytes);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_clone, EAGAIN}) || !RefuseSystemCall({SYS_clone3, EAGAIN})) {
      return Verdict::kCannotTell;
    }
    BlockList blocks(1 << 20);
    const auto engine = OpenOrThrow(file.path(), {.kind = EngineKind::kPread});
    const Status started = engine->Start(blocks.Add(0, 1).reads());
    CHILD_CHECK(!started);
    CHILD_CHECK(started.error().code() == ErrorCode::kResourceExhausted);
    CHILD_CHECK(started.error().error_number() == EAGAIN);
    CHILD_CHECK(engine->outstanding() == 0);
    CHILD_CHECK(engine->WaitSome()->empty());
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::file
