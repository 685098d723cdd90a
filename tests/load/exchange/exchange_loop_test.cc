// Goal: a loop serves all readers with little memory, whatever one of them does.
// Method: the test drives the loop of reader 0, and holds the sockets of the other readers.
#include "lmdbio/load/exchange/exchange_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/load/exchange/socket_pair.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::load {
namespace {

using file::BlockList;
using file::EngineFile;
using Kind = ExchangeFrame::Kind;

constexpr uint64_t kChunk = 64 << 10;

// The limits of most tests: nothing stalls by itself.
ExchangeLimits LimitsFor(const EngineFile& file) {
  ExchangeLimits limits;
  limits.chunk_bytes = kChunk;
  limits.file_bytes = file.size_bytes();
  limits.stall_limit = std::chrono::minutes(10);
  limits.memory_limit = std::chrono::minutes(10);
  return limits;
}

class PlayedLoop {
 public:
  PlayedLoop(const EngineFile& file, const ExchangeLimits& limits, int reader_count,
             uint64_t chunks_held)
      : memory_(test::Good(ranks::AllocateAnonymous(chunks_held * kChunk))),
        sockets_(static_cast<size_t>(reader_count)),
        event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    ExchangeLinks links;
    links.sockets.resize(static_cast<size_t>(reader_count));
    for (size_t reader = 1; reader < sockets_.size(); ++reader) {
      auto [ours, theirs] = SocketPair();
      links.sockets[reader] = std::move(ours);
      sockets_[reader] = std::move(theirs);
    }
    loop_ = std::make_unique<ExchangeLoop>(
        file::OpenOrThrow(file.path(), {.cache = file::CachePolicy::kDirect}), std::move(links),
        memory_->bytes(), limits);
  }

  ExchangeLoop& loop() { return *loop_; }

  void Send(int from, const std::vector<ExchangeFrame>& frames) {
    const Bytes bytes = std::as_bytes(std::span(frames));
    LMDBIO_CHECK(::send(socket(from), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(bytes.size()));
  }

  // Turns the loop until `is_done`. Returns false after half a minute.
  bool TurnUntil(const std::function<bool()>& is_done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      LMDBIO_CHECK(loop_->Turn().has_value());
      for (file::BlockDone& block : loop_->TakeDone()) {
        if (!block.status) ++failed_count;
        ++done_count;
      }
      for (std::string& note : loop_->TakeNotes()) notes.push_back(std::move(note));
      Wake();
      loop_->Sleep(event_.get());
    }
    return true;
  }
  void TurnSome() {
    int turns = 0;
    LMDBIO_CHECK(TurnUntil([&] { return ++turns > 50; }));
  }

  // The next frame for `reader`, without its bytes; turns the loop until there is one.
  ExchangeFrame Await(int reader) {
    ExchangeFrame frame;
    LMDBIO_CHECK(TurnUntil([&] {
      return ::recv(socket(reader), &frame, sizeof frame, MSG_PEEK) ==
             static_cast<ssize_t>(sizeof frame);
    }));
    LMDBIO_CHECK(::recv(socket(reader), &frame, sizeof frame, 0) == sizeof frame);
    if (frame.kind != Kind::kReply) return frame;
    std::vector<std::byte> body(frame.length_bytes);
    size_t got = 0;
    LMDBIO_CHECK(TurnUntil([&] {
      const ssize_t more = ::recv(socket(reader), &body[got], body.size() - got, 0);
      if (more > 0) got += static_cast<size_t>(more);
      return got == body.size();
    }));
    return frame;
  }
  bool HasFrame(int reader) {
    std::byte one{};
    return ::recv(socket(reader), &one, 1, MSG_PEEK) == 1;
  }
  bool IsClosed(int reader) {
    std::byte one{};
    return ::recv(socket(reader), &one, 1, MSG_PEEK) == 0;
  }

  uint64_t done_count = 0;
  uint64_t failed_count = 0;
  std::vector<std::string> notes;

 private:
  int socket(int reader) const { return sockets_[static_cast<size_t>(reader)].get(); }
  // So that a turn of the test never sleeps long.
  void Wake() const {
    const uint64_t one = 1;
    LMDBIO_CHECK(::write(event_.get(), &one, sizeof one) == sizeof one);
  }

  std::unique_ptr<ranks::SharedMemory> memory_;
  std::vector<UniqueFd> sockets_;  // of the other readers
  UniqueFd event_;
  std::unique_ptr<ExchangeLoop> loop_;
};

// The frames by which a reader asks for whole chunks of reader 0.
std::vector<ExchangeFrame> RequestsFor(const std::vector<uint64_t>& chunks) {
  std::vector<ExchangeFrame> frames;
  for (const uint64_t chunk : chunks) {
    frames.push_back({Kind::kRequest, static_cast<uint32_t>(chunk), chunk * kChunk, kChunk});
  }
  return frames;
}

TEST_CASE("A reader that takes no replies has all memory, and the others are refused",
          "[exchange]") {
  const EngineFile file(60 * kChunk);
  ExchangeLimits limits = LimitsFor(file);
  limits.memory_limit = std::chrono::milliseconds(20);
  PlayedLoop played(file, limits, 3, 4);
  // More than the buffers of the connection hold.
  played.Send(1, RequestsFor({0, 3, 6, 9, 12, 15, 18, 21}));
  played.TurnSome();
  BlockList blocks(1 << 20);
  blocks.Add(30 * kChunk, 1000);
  played.loop().Add(blocks.reads());
  played.Send(2, {{Kind::kRequest, 77, 33 * kChunk, 500}});
  const ExchangeFrame answer = played.Await(2);
  CHECK(answer.kind == Kind::kRefusal);
  CHECK(answer.id == 77);
  REQUIRE(played.TurnUntil([&] { return played.done_count == 1; }));
  CHECK(blocks.HoldWhat(file));
  // Once the replies are taken, the others are served again.
  for (int i = 0; i < 4; ++i) played.Await(1);
  played.Send(2, {{Kind::kRequest, 78, 36 * kChunk, 500}});
  CHECK(played.Await(2).kind == Kind::kReply);
}

TEST_CASE("Memory that becomes free goes to the lowest chunk", "[exchange]") {
  const EngineFile file(60 * kChunk);
  PlayedLoop played(file, LimitsFor(file), 3, 1);
  played.Send(1, RequestsFor({3}));
  CHECK(played.Await(1).id == 3);
  // Chunk 3 keeps its memory for a while: reader 0 may still want it.
  played.Send(1, RequestsFor({30}));
  played.Send(2, RequestsFor({24}));
  played.TurnSome();
  played.Send(2, RequestsFor({12}));
  CHECK(played.Await(2).id == 12);
  CHECK(played.Await(2).id == 24);
  CHECK(played.Await(1).id == 30);
}

TEST_CASE("An owner that does not answer is given up", "[exchange]") {
  const EngineFile file(60 * kChunk);
  ExchangeLimits limits = LimitsFor(file);
  limits.stall_limit = std::chrono::milliseconds(50);
  PlayedLoop played(file, limits, 3, 4);
  BlockList blocks(1 << 20);
  blocks.Add(kChunk, 1000).Add(2 * kChunk - 500, 1000);  // of readers 1, and 1 and 2
  played.loop().Add(blocks.reads());
  REQUIRE(played.TurnUntil([&] { return played.done_count == 2; }));
  CHECK(played.failed_count == 0);
  CHECK(blocks.HoldWhat(file));
  REQUIRE(played.notes.size() == 2);
  CHECK(played.notes[0].starts_with("reader 1 of the exchange does not answer"));
  played.Await(1);
  played.Await(1);
  CHECK(played.IsClosed(1));
}

TEST_CASE("A reader that owes nothing may be silent", "[exchange]") {
  const EngineFile file(60 * kChunk);
  ExchangeLimits limits = LimitsFor(file);
  limits.stall_limit = std::chrono::milliseconds(1);
  PlayedLoop played(file, limits, 2, 4);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  REQUIRE(played.TurnUntil([&] { return std::chrono::steady_clock::now() > end; }));
  CHECK_FALSE(played.IsClosed(1));
  CHECK(played.notes.empty());
}

TEST_CASE("A reader may not ask for more than the limit", "[exchange]") {
  const EngineFile file(60 * kChunk);
  ExchangeLimits limits = LimitsFor(file);
  limits.pieces_max = 4;
  PlayedLoop played(file, limits, 2, 16);
  const bool is_allowed = GENERATE(true, false);
  std::vector<uint64_t> chunks{0, 2, 4, 6, 8};
  if (!is_allowed) chunks.push_back(10);
  played.Send(1, RequestsFor(chunks));
  if (is_allowed) {
    for (size_t i = 0; i < chunks.size(); ++i) CHECK(played.Await(1).kind == Kind::kReply);
  } else {
    REQUIRE(played.TurnUntil([&] { return !played.notes.empty(); }));
    CHECK(played.notes[0].find("malformed") != std::string::npos);
  }
}

TEST_CASE("No more pieces are asked for at a time than the limit", "[exchange]") {
  const EngineFile file(60 * kChunk);
  ExchangeLimits limits = LimitsFor(file);
  limits.pieces_max = 4;
  PlayedLoop played(file, limits, 2, 4);
  BlockList blocks(1 << 20);
  for (uint64_t i = 0; i < 10; ++i) blocks.Add((2 * i + 1) * kChunk, 1000);
  played.loop().Add(blocks.reads());
  for (int i = 0; i < 4; ++i) CHECK(played.Await(1).kind == Kind::kRequest);
  played.TurnSome();
  CHECK_FALSE(played.HasFrame(1));
  played.Send(1, {{Kind::kRefusal, 0, kChunk, 1000}});
  CHECK(played.Await(1).offset == 9 * kChunk);
  played.TurnSome();
  CHECK_FALSE(played.HasFrame(1));
}

TEST_CASE("A read of half a chunk goes to the file, a smaller one to the owner", "[exchange]") {
  const EngineFile file(60 * kChunk);
  PlayedLoop played(file, LimitsFor(file), 2, 4);
  BlockList large(1 << 20);
  large.Add(kChunk, kChunk / 2);
  played.loop().Add(large.reads());
  REQUIRE(played.TurnUntil([&] { return played.done_count == 1; }));
  CHECK_FALSE(played.HasFrame(1));
  CHECK(large.HoldWhat(file));
  BlockList small(1 << 20);
  small.Add(kChunk, kChunk / 2 - 1);
  played.loop().Add(small.reads());
  CHECK(played.Await(1).length_bytes == kChunk / 2 - 1);
}

TEST_CASE("Reads outside the file fail alone", "[exchange]") {
  const EngineFile file(10 * kChunk + 100);
  PlayedLoop played(file, LimitsFor(file), 2, 4);
  BlockList blocks(1 << 20);
  blocks.Add(file.size_bytes() - 10, 20).Add(~uint64_t{0} - 999, 2000).Add(100 * kChunk, 10);
  played.loop().Add(blocks.reads());
  REQUIRE(played.TurnUntil([&] { return played.done_count == 3; }));
  CHECK(played.failed_count == 3);
  BlockList good(1 << 20);
  good.Add(file.size_bytes() - 20, 20).Add(0, 100);
  played.loop().Add(good.reads());
  REQUIRE(played.TurnUntil([&] { return played.done_count == 5; }));
  CHECK(played.failed_count == 3);
  CHECK(good.HoldWhat(file));
}

TEST_CASE("The chunks of many epochs are read once in each of them", "[exchange]") {
  const EngineFile file(20 * kChunk);
  PlayedLoop played(file, LimitsFor(file), 2, 3);
  uint64_t expected = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (uint64_t chunk = 0; chunk < 20; chunk += 2) {
      played.Send(1, {{Kind::kRequest, 1, chunk * kChunk, 100}});
      CHECK(played.Await(1).kind == Kind::kReply);
      BlockList own(1 << 20);  // this reader follows
      own.Add(chunk * kChunk + 100, 100);
      const uint64_t before = played.done_count;
      played.loop().Add(own.reads());
      REQUIRE(played.TurnUntil([&] { return played.done_count == before + 1; }));
      CHECK(own.HoldWhat(file));
      ++expected;
    }
  }
  CHECK(played.loop().engine().counters().request_count == expected);
}

}  // namespace
}  // namespace lmdbio::load
