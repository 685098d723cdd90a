// Goal: readers that exchange get the bytes of the file, whatever the others do.
// Method: threads act as readers of different hosts. Some tests play another reader by hand, on the
// other end of a socket.
// Oracle: plain pread of the file; the size of the file, for the bytes that are read.
#include "lmdbio/load/exchange/exchange_engine.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/load/exchange/socket_pair.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::load {
namespace {

using file::BlockEngine;
using file::BlockList;
using file::Drain;
using file::EngineFile;
using file::EngineKind;
using Kind = ExchangeFrame::Kind;

std::unique_ptr<BlockEngine> OpenPlain(const EngineFile& file,
                                       EngineKind kind = EngineKind::kUring) {
  return file::OpenOrThrow(file.path(), {.kind = kind, .cache = file::CachePolicy::kDirect});
}

std::unique_ptr<ExchangeEngine> OpenExchange(const EngineFile& file, ExchangeLinks links,
                                             const ExchangeLimits& limits,
                                             EngineKind kind = EngineKind::kUring) {
  std::unique_ptr<BlockEngine> plain = OpenPlain(file, kind);
  return test::Good(ExchangeEngine::Open(plain, std::move(links), limits, {}));
}

// Runs `read` in each of `readers` threads, then `check` after all of them. The engines end last.
void ReadTogether(int readers, const EngineFile& file, const ExchangeLimits& limits,
                  EngineKind kind,
                  const std::function<void(int rank, std::unique_ptr<ExchangeEngine>&)>& read,
                  const std::function<void(int rank)>& check = {}) {
  ranks::RunAsThreads({readers, 1}, [&](ranks::Group& group) {
    auto engine = OpenExchange(file, test::Good(OpenExchangeLinks(group)), limits, kind);
    LMDBIO_CHECK(group.Barrier().has_value());
    read(group.rank(), engine);
    LMDBIO_CHECK(group.Barrier().has_value());
    if (check) check(group.rank());
  });
}

TEST_CASE("Readers that exchange get the bytes of the file", "[exchange]") {
  const EngineFile file(3'000'000);  // not a multiple of any chunk
  const auto kind = GENERATE(EngineKind::kUring, EngineKind::kPread, EngineKind::kMmap);
  const int readers = GENERATE(2, 3, 5);
  const uint64_t chunk_bytes = GENERATE(4096, 20'480, 1 << 20);
  CAPTURE(file::EngineKindName(kind), readers, chunk_bytes);
  std::atomic<int> wrong{0};
  ReadTogether(readers, file, {chunk_bytes, file.size_bytes(), 16}, kind,
               [&](int rank, std::unique_ptr<ExchangeEngine>& engine) {
                 test::Random random(static_cast<uint64_t>(rank) + 1);
                 for (int round = 0; round < 3; ++round) {
                   BlockList blocks(6 << 20);
                   blocks.AddRandom(random, file.size_bytes(), 60);
                   const Status started = engine->Start(blocks.reads());
                   if (!started || !Drain(*engine).empty() || !blocks.HoldWhat(file)) ++wrong;
                 }
                 if (engine->outstanding() != 0) ++wrong;
               });
  CHECK(wrong == 0);
}

TEST_CASE("Each byte is read once, however many readers need a part of it", "[exchange]") {
  constexpr uint64_t kChunkBytes = 64 << 10;
  constexpr int kReaders = 4;
  constexpr uint64_t kPieceBytes = kChunkBytes / kReaders;
  const EngineFile file(64 * kChunkBytes);
  std::atomic<int> wrong{0};
  std::atomic<uint64_t> read_bytes{0};
  std::atomic<uint64_t> read_count{0};
  ReadTogether(kReaders, file, {kChunkBytes, file.size_bytes()}, EngineKind::kUring,
               [&](int rank, std::unique_ptr<ExchangeEngine>& engine) {
                 BlockList blocks(2 << 20);
                 for (uint64_t chunk = 0; chunk < 64; ++chunk) {
                   blocks.Add(chunk * kChunkBytes + static_cast<uint64_t>(rank) * kPieceBytes,
                              kPieceBytes);
                 }
                 const Status started = engine->Start(blocks.reads());
                 if (!started || !Drain(*engine).empty() || !blocks.HoldWhat(file)) ++wrong;
                 read_bytes += engine->counters().bytes;
                 read_count += engine->counters().request_count;
               });
  CHECK(wrong == 0);
  CHECK(read_bytes == file.size_bytes());
  CHECK(read_count == 64);
}

TEST_CASE("A reader that leaves costs no bytes", "[exchange]") {
  const EngineFile file(4 << 20);
  std::atomic<int> wrong{0};
  const ExchangeLimits limits{64 << 10, file.size_bytes(), 16};
  BlockList of_leaver(3 << 20);
  std::vector<std::byte> at_end;
  ReadTogether(
      3, file, limits, EngineKind::kUring,
      [&](int rank, std::unique_ptr<ExchangeEngine>& engine) {
        test::Random random(static_cast<uint64_t>(rank) + 1);
        BlockList own(3 << 20);
        BlockList& blocks = rank == 0 ? of_leaver : own;
        while (blocks.reads().size() < 100) {
          blocks.Add(random.Below(file.size_bytes() - 9000), random.Between(1, 9000));
        }
        if (!engine->Start(blocks.reads())) ++wrong;
        if (rank == 0) {
          engine.reset();  // in the middle of its reads, and of those of the others
          at_end.assign(blocks.memory().begin(), blocks.memory().end());
        } else if (!Drain(*engine).empty() || !blocks.HoldWhat(file)) {
          ++wrong;
        }
      },
      [&](int rank) {  // nobody has written to a destination after the engine's end
        const auto now = of_leaver.memory();
        if (rank == 0 && !std::equal(now.begin(), now.end(), at_end.begin())) ++wrong;
      });
  CHECK(wrong == 0);
}

// The file is shorter than all believe: a chunk cannot be read, and its bytes are still delivered.
TEST_CASE("The owner of a chunk that cannot be read refuses, and nobody misses a byte",
          "[exchange]") {
  const EngineFile file(100'000);
  std::atomic<int> wrong{0};
  const ExchangeLimits limits{64 << 10, 200'000};
  ReadTogether(2, file, limits, EngineKind::kUring,
               [&](int, std::unique_ptr<ExchangeEngine>& engine) {
                 BlockList blocks(1 << 20);
                 blocks.Add(70'000, 20'000).Add(1000, 5000);
                 if (!engine->Start(blocks.reads())) ++wrong;
                 if (!Drain(*engine).empty() || !blocks.HoldWhat(file)) ++wrong;
                 BlockList beyond(1 << 20);
                 beyond.Add(95'000, 10'000).Add(150'000, 10'000);
                 if (!engine->Start(beyond.reads())) ++wrong;
                 if (Drain(*engine).size() != 2) ++wrong;
               });
  CHECK(wrong == 0);
}

// --- Another reader by hand ---

// Reader 0 of two has an engine; the test holds the socket of reader 1.
struct PlayedReader {
  PlayedReader(const EngineFile& file, const ExchangeLimits& limits,
               std::unique_ptr<BlockEngine> plain = nullptr) {
    auto [ours, theirs] = SocketPair();
    ExchangeLinks links;
    links.sockets.resize(2);
    links.sockets[1] = std::move(ours);
    socket = std::move(theirs);
    if (!plain) plain = OpenPlain(file);
    engine = test::Good(ExchangeEngine::Open(plain, std::move(links), limits, {}));
  }
  void Send(const ExchangeFrame& frame) const { SendBytes(std::as_bytes(std::span(&frame, 1))); }
  void SendBytes(Bytes bytes) const {
    LMDBIO_CHECK(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(bytes.size()));
  }
  ExchangeFrame Await() const {
    ExchangeFrame frame;
    pollfd polled{socket.get(), POLLIN, 0};
    LMDBIO_CHECK(::poll(&polled, 1, 30'000) == 1);
    LMDBIO_CHECK(::recv(socket.get(), &frame, sizeof frame, 0) == sizeof frame);
    return frame;
  }
  UniqueFd socket;
  std::unique_ptr<ExchangeEngine> engine;
};

TEST_CASE("A malformed frame drops the link, and all reads still complete", "[exchange]") {
  constexpr uint64_t kChunk = 64 << 10;
  const EngineFile file(10 * kChunk);
  PlayedReader other(file, {kChunk, file.size_bytes()});
  BlockList blocks(1 << 20);
  blocks.Add(kChunk + 100, 1000).Add(3 * kChunk, 1000);  // both of reader 1
  REQUIRE(other.engine->Start(blocks.reads()));
  const ExchangeFrame asked = other.Await();
  REQUIRE(asked.kind == Kind::kRequest);
  CHECK(asked.offset == kChunk + 100);
  CHECK(asked.length_bytes == 1000);
  const std::array<std::byte, 2000> body{};
  SECTION("an end") { other.socket = UniqueFd(); }
  SECTION("an end within a reply") {
    other.Send({Kind::kReply, asked.id, asked.offset, asked.length_bytes});
    other.SendBytes(Bytes(body).first(500));
    other.socket = UniqueFd();
  }
  SECTION("an unknown kind") { other.Send({Kind{77}, asked.id, asked.offset, 1000}); }
  SECTION("a reply that nobody asked for") { other.Send({Kind::kReply, 99, asked.offset, 1000}); }
  SECTION("a refusal that nobody asked for") { other.Send({Kind::kRefusal, 99, 0, 0}); }
  SECTION("a reply of another length") { other.Send({Kind::kReply, asked.id, asked.offset, 1001}); }
  SECTION("a second reply") {
    std::vector<std::byte> message(2 * (sizeof(ExchangeFrame) + 1000));
    const ExchangeFrame reply{Kind::kReply, asked.id, asked.offset, asked.length_bytes};
    LMDBIO_CHECK(file.ReadTo(asked.offset, std::span(message).subspan(sizeof reply, 1000)));
    for (const size_t at : {size_t{0}, sizeof reply + 1000}) {
      std::memcpy(&message[at], &reply, sizeof reply);
    }
    other.SendBytes(message);  // the second one with zeros
  }
  SECTION("a reply behind a refusal") {
    // In one message, because the link may be dropped before a second one.
    const std::array<ExchangeFrame, 2> frames{{{Kind::kRefusal, asked.id, asked.offset, 1000},
                                               {Kind::kReply, asked.id, asked.offset, 1000}}};
    std::vector<std::byte> message(sizeof frames + 1000);
    std::memcpy(message.data(), frames.data(), sizeof frames);
    other.SendBytes(message);
  }
  SECTION("a reply of other bytes") { other.Send({Kind::kReply, asked.id, kChunk, 1000}); }
  SECTION("a request for a chunk of another reader") {
    other.Send({Kind::kRequest, 1, 3 * kChunk, 10});
  }
  SECTION("a request for bytes of two chunks") {
    other.Send({Kind::kRequest, 1, 3 * kChunk - 5, 10});
  }
  SECTION("a request for no bytes") { other.Send({Kind::kRequest, 1, 2 * kChunk, 0}); }
  SECTION("a request behind the file") { other.Send({Kind::kRequest, 1, 12 * kChunk, 10}); }
  SECTION("a request whose end overflows") {
    other.Send({Kind::kRequest, 1, ~uint64_t{0} - 5, 10});
  }
  CHECK(Drain(*other.engine).empty());
  CHECK(blocks.HoldWhat(file));
  // The engine goes on alone, and reads no more than it needs.
  const uint64_t before = other.engine->counters().bytes;
  BlockList more(1 << 20);
  more.Add(5 * kChunk, 1000).Add(2 * kChunk, 1000);
  REQUIRE(other.engine->Start(more.reads()));
  CHECK(Drain(*other.engine).empty());
  CHECK(more.HoldWhat(file));
  CHECK(other.engine->counters().bytes - before <= 2 * file::kPageBytes);
}

TEST_CASE("A refusal is answered by a read of the file", "[exchange]") {
  constexpr uint64_t kChunk = 64 << 10;
  const EngineFile file(4 * kChunk);
  PlayedReader other(file, {kChunk, file.size_bytes()});
  BlockList blocks(1 << 20);
  blocks.Add(kChunk - 10, 20);  // one half from each reader
  REQUIRE(other.engine->Start(blocks.reads()));
  const ExchangeFrame asked = other.Await();
  CHECK(asked.length_bytes == 10);
  other.Send({Kind::kRefusal, asked.id, asked.offset, asked.length_bytes});
  CHECK(Drain(*other.engine).empty());
  CHECK(blocks.HoldWhat(file));
  // The link stands: the other reader is served.
  other.Send({Kind::kRequest, 5, 2 * kChunk, 100});
  const ExchangeFrame reply = other.Await();
  CHECK(reply.kind == Kind::kReply);
  CHECK(reply.id == 5);
}

TEST_CASE("An exchange says how many readers take part, and counts its reads", "[exchange]") {
  const EngineFile file(1 << 20);
  PlayedReader other(file, {64 << 10, file.size_bytes()});
  CHECK(other.engine->Describe().ends_with(", exchange of 2 readers"));
  CHECK(other.engine->Poll()->empty());
  CHECK(other.engine->WaitSome()->empty());
  BlockList blocks(1 << 20);
  blocks.Add(0, 10);
  REQUIRE(other.engine->Start(blocks.reads()));
  CHECK(Drain(*other.engine).empty());
  CHECK(other.engine->counters().bytes == 64 << 10);
  CHECK(other.engine->TakeNotes() == OpenPlain(file)->TakeNotes());
}

// Fails as a whole at its first Poll with reads, and changes its name then.
class FailingEngine final : public BlockEngine {
 public:
  std::string Describe() const override { return name_; }
  Status Start(std::span<const file::BlockRead> blocks) override {
    count_ += blocks.size();
    return {};
  }
  Result<std::span<file::BlockDone>> WaitSome(std::chrono::milliseconds) override { return Poll(); }
  Result<std::span<file::BlockDone>> Poll() override {
    if (count_ == 0) return std::span<file::BlockDone>();
    if (std::exchange(name_, "other") == "first") return std::span<file::BlockDone>();
    return Fail(ErrorCode::kIo, "the ring is broken");
  }
  uint64_t outstanding() const override { return count_; }
  file::EngineCounters counters() const override { return {}; }
  std::vector<std::string> TakeNotes() override {
    if (name_ == "first" || has_noted_) return {};
    has_noted_ = true;
    return {"another way"};
  }

 private:
  std::string name_ = "first";
  bool has_noted_ = false;
  uint64_t count_ = 0;
};

TEST_CASE("A failure of the engine itself is told, and ends the service", "[exchange]") {
  const EngineFile file(1 << 20);
  PlayedReader other(file, {64 << 10, file.size_bytes()}, std::make_unique<FailingEngine>());
  CHECK(other.engine->Describe() == "first, exchange of 2 readers");
  BlockList blocks(1 << 20);
  blocks.Add(0, 10);
  REQUIRE(other.engine->Start(blocks.reads()));
  Result<std::span<file::BlockDone>> done = other.engine->WaitSome();
  while (done) done = other.engine->WaitSome();
  CHECK(done.error().message() == "the ring is broken");
  CHECK_FALSE(other.engine->Start(blocks.reads()));
  CHECK_FALSE(other.engine->Poll());
  CHECK(other.engine->Describe() == "other, exchange of 2 readers");
  CHECK(other.engine->TakeNotes() == std::vector<std::string>{"another way"});
  std::byte end{};
  CHECK(::recv(other.socket.get(), &end, 1, 0) == 0);
}

}  // namespace
}  // namespace lmdbio::load
