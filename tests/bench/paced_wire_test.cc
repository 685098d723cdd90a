// Goal: a paced wire carries what its inner wire carries, and no earlier than its network would.
//
// Method: ranks are threads with a wire in memory. A sleep never ends early, so the least times
// hold on any machine. Nothing is said about the longest ones.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/device_jobs/memory_wire.h"
#include "bench/sync/wire/paced_wire.h"
#include "lmdbio/base/check.h"
#include "tests/support/catch.h"

namespace lmdbio::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Time = PacedLink::Time;

constexpr WirePace kPace = {.bits_per_s = 80e6, .delay = milliseconds(20)};
constexpr size_t kMessageBytes = 100'000;  // 10 ms at this rate

// In threads of ranks, where Catch2 has no assertions.
void Must(const Status& status) { LMDBIO_CHECK(status.has_value()); }
template <typename T>
T Must(Result<T> result) {
  LMDBIO_CHECK(result.has_value());
  return std::move(*result);
}

Time Now() { return std::chrono::steady_clock::now(); }

// Runs `rank_program` as each rank, with a paced wire.
void RunRanks(int rank_count, const std::function<void(sync::Wire&)>& rank_program) {
  const auto exchange = std::make_shared<figures::MemoryExchange>(rank_count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      const auto wire = MakePacedWire(std::make_unique<figures::MemoryWire>(exchange, rank), kPace);
      rank_program(*wire);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("The bytes of a link pass one after the other", "[wire]") {
  PacedLink link(8e9);  // a byte in a nanosecond
  const Time start;
  const auto reserve = [&](int64_t earliest_ns, uint64_t bytes) {
    const PacedLink::Passage passage = link.Reserve(start + nanoseconds(earliest_ns), bytes);
    return std::pair((passage.begin - start).count(), (passage.end - start).count());
  };
  CHECK(reserve(100, 50) == std::pair<int64_t, int64_t>(100, 150));
  CHECK(reserve(0, 10) == std::pair<int64_t, int64_t>(150, 160));
  CHECK(reserve(1000, 1) == std::pair<int64_t, int64_t>(1000, 1001));
  PacedLink free(0);
  CHECK(free.Reserve(start + nanoseconds(7), 1'000'000).end == start + nanoseconds(7));
}

TEST_CASE("Messages of several ranks share the network of their receiver", "[wire]") {
  constexpr int kRanks = 3;
  const Time start = Now();
  std::vector<nanoseconds> ends(kRanks);
  std::vector<std::vector<std::byte>> received(4, std::vector<std::byte>(kMessageBytes));
  RunRanks(kRanks, [&](sync::Wire& wire) {
    const std::vector<std::byte> values(kMessageBytes, static_cast<std::byte>(wire.rank()));
    if (wire.rank() > 0) {
      const std::vector<Bytes> both(2, values);
      Must(wire.StartSendAll(0, both));
      Must(wire.AwaitSend(0));
      Must(wire.AwaitSend(0));
    } else {
      for (size_t i = 0; i < 4; ++i) Must(wire.StartReceive(i < 2 ? 1 : 2, received[i]));
      for (size_t i = 0; i < 4; ++i) Must(wire.AwaitReceive(i < 2 ? 1 : 2));
    }
    ends[static_cast<size_t>(wire.rank())] = Now() - start;
  });
  CHECK(ends[0] >= kPace.delay + milliseconds(4 * 10));
  CHECK(ends[1] >= milliseconds(2 * 10));
  CHECK(ends[2] >= milliseconds(2 * 10));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(received[i] == std::vector<std::byte>(kMessageBytes, static_cast<std::byte>(1 + i / 2)));
  }
}

TEST_CASE("A query finds a message when its time has come", "[wire]") {
  Time start;
  bool was_early = true;
  uint64_t sent = 7;
  uint64_t received = 0;
  const auto as_bytes = [](uint64_t& value) {
    return std::as_writable_bytes(std::span(&value, 1));
  };
  RunRanks(2, [&](sync::Wire& wire) {
    if (wire.rank() == 0) {
      start = Now();
      Must(wire.StartSend(1, as_bytes(sent)));
      while (!Must(wire.IsSent(1))) std::this_thread::yield();
      Must(wire.AwaitSend(1));
    } else {
      Must(wire.StartReceive(0, as_bytes(received)));
      while (!Must(wire.IsReceived(0))) std::this_thread::yield();
      was_early = Now() < start + kPace.delay;
      Must(wire.AwaitReceive(0));
    }
  });
  CHECK_FALSE(was_early);
  CHECK(received == 7);
}

TEST_CASE("Messages without bytes keep their places among others", "[wire]") {
  std::vector<std::byte> first(3, std::byte{1});
  std::vector<std::byte> last(5, std::byte{2});
  std::vector<std::byte> got_first(3);
  std::vector<std::byte> got_last(5);
  RunRanks(2, [&](sync::Wire& wire) {
    const int other = 1 - wire.rank();
    if (wire.rank() == 0) {
      const std::vector<Bytes> messages = {{}, first, {}, last, {}};
      Must(wire.StartSendAll(other, messages));
      for (int i = 0; i < 5; ++i) Must(wire.AwaitSend(other));
    } else {
      for (const MutableBytes bytes : {MutableBytes(), MutableBytes(got_first), MutableBytes(),
                                       MutableBytes(got_last), MutableBytes()}) {
        Must(wire.StartReceive(other, bytes));
      }
      for (int i = 0; i < 5; ++i) Must(wire.AwaitReceive(other));
    }
  });
  CHECK(got_first == first);
  CHECK(got_last == last);
}

TEST_CASE("Stop ends a rank that waits", "[wire]") {
  std::byte byte{};
  Status status;
  RunRanks(2, [&](sync::Wire& wire) {
    if (wire.rank() == 0) {
      wire.Stop(Error(ErrorCode::kInternal, "out of tests"));
      return;
    }
    // The other rank may have stopped before.
    status = wire.StartReceive(0, {&byte, 1});
    if (status) status = wire.AwaitReceive(0);
  });
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().code() == ErrorCode::kPeerFailed);
  CHECK(status.error().message().find("out of tests") != std::string::npos);
}

TEST_CASE("A measurement shows no less delay and no more rate than there is", "[wire]") {
  std::vector<WireFigures> figures(2);
  RunRanks(2, [&](sync::Wire& wire) {
    figures[static_cast<size_t>(wire.rank())] = Must(MeasureWire(wire));
  });
  for (const WireFigures& one : figures) {
    CHECK(one.ping_us >= 20'000);
    CHECK(one.bits_per_s > 0);
    CHECK(one.bits_per_s <= kPace.bits_per_s);
  }
}

}  // namespace
}  // namespace lmdbio::bench
