// Goal: messages of any size arrive whole, in order and from the right rank. A rank that waits for
// another one gets an error if that rank has failed or is gone.
// Method: ranks played by threads, over real sockets of this host.
#include "lmdbio/ranks/net/peer_links.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/ranks/net/all_pairs.h"
#include "tests/ranks/net/foreign_links.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using test::AllPairs;

std::vector<std::byte> Message(int from, int to, size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = test::PatternByte(from * 100 + to, i);
  return bytes;
}

TEST_CASE("Messages of any size arrive whole and in order", "[comm][peer_links]") {
  const std::vector<size_t> sizes = {0, 1, 15, 16, 17, 65535, 65536, 70000, 3, 1 << 20};
  const int rank_count = GENERATE(1, 2, 5);
  std::vector<std::string> wrong(static_cast<size_t>(rank_count));
  RunAsThreads({rank_count, 2}, [&](Group& group) {
    std::string& mine = wrong[static_cast<size_t>(group.rank())];
    const auto links = PeerLinks::Open(group, AllPairs(group));
    if (!links) return void(mine = links.error().message());
    // A thread of its own sends: two ranks that only send to each other would fill all buffers.
    std::thread sender([&] {
      for (const size_t size : sizes) {
        for (int to = 0; to < group.size(); ++to) {
          if (to == group.rank()) continue;
          if (!(*links)->Send(to, Message(group.rank(), to, size))) mine = "Send failed";
        }
      }
    });
    for (const size_t size : sizes) {
      for (int from = group.size() - 1; from >= 0; --from) {
        if (from == group.rank()) continue;
        const auto got = (*links)->Receive(from);
        if (!got || !*got || **got != Message(from, group.rank(), size)) {
          mine = "another message of " + std::to_string(size);
        }
      }
    }
    sender.join();
    if (!group.Barrier()) mine = "Barrier failed";
  });
  for (const std::string& why : wrong) CHECK(why.empty());
}

TEST_CASE("A rank that fails or ends is an error for those that wait for it",
          "[comm][peer_links]") {
  const bool says_why = GENERATE(true, false);
  std::vector<std::string> heard(3);
  std::vector<int> numbers(3);
  RunAsThreads({3, 1}, [&](Group& group) {
    auto links = PeerLinks::Open(group, AllPairs(group));
    if (!links) std::terminate();
    const auto rank = static_cast<size_t>(group.rank());
    if (rank == 1) {
      // Messages that were sent before the failure still arrive.
      for (const int to : {0, 2}) {
        if (!(*links)->Send(to, Message(1, to, 10))) std::terminate();
        if (says_why) {
          const Error why(ErrorCode::kIo, "rank 1: x/data.mdb: no luck", EIO);
          if (!(*links)->SendFailure(to, why)) {
            std::terminate();
          }
        }
      }
      links->reset();
    } else {
      const auto first = (*links)->Receive(1);
      if (!first || !*first || **first != Message(1, group.rank(), 10)) std::terminate();
      const auto second = (*links)->Receive(1);
      if (second) std::terminate();
      if (second.error().code() == ErrorCode::kPeerFailed) heard[rank] = second.error().message();
      numbers[rank] = second.error().error_number();
    }
    if (!group.Barrier()) std::terminate();
  });
  for (const size_t rank : {0U, 2U}) {
    INFO(heard[rank]);
    CHECK(numbers[rank] == (says_why ? EIO : 0));
    if (says_why) {
      CHECK(heard[rank] == "rank 1: x/data.mdb: no luck");
    } else {
      CHECK(heard[rank].find("rank 1 on ") == 0);
      CHECK(heard[rank].find("has ended unexpectedly") != std::string::npos);
    }
  }
}

TEST_CASE("A frame that no rank sends is an error before its bytes have come",
          "[comm][peer_links]") {
  const auto [kind, length_bytes] = GENERATE(table<uint32_t, uint64_t>(
      {{1, ~uint64_t{0}}, {1, (uint64_t{1} << 30) + 1}, {2, uint64_t{1} << 62}, {0, 4}, {3, 4}}));
  const int neighbours[] = {1};
  test::ForeignLinks foreign(2, neighbours);
  const std::vector<std::byte> message = Message(1, 0, 10);
  foreign.SendFrame(0, 1, message.size(), message);
  foreign.SendFrame(0, kind, length_bytes, {});
  const auto links = foreign.TakeLinks();
  const auto first = links->Receive(1);
  REQUIRE((first && *first));
  CHECK(**first == message);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(links->HasMessage(1));
    CHECK_FALSE(links->IsGone(1));
    const auto second = links->Receive(1);
    REQUIRE_FALSE(second);
    CHECK(second.error().code() == ErrorCode::kPeerFailed);
    CHECK(
        second.error().message() ==
        fmt::format("rank 1 has sent a malformed message: kind {}, {} bytes", kind, length_bytes));
  }
}

TEST_CASE("A failure without words names its rank", "[comm][peer_links]") {
  const int neighbours[] = {1};
  test::ForeignLinks foreign(2, neighbours);
  foreign.SendFrame(0, 2, 0, {});
  const auto got = foreign.TakeLinks()->Receive(1);
  REQUIRE_FALSE(got);
  CHECK(got.error().message() == "rank 1 has failed");
}

TEST_CASE("Stop ends a wait of Receive and of Send", "[comm][peer_links]") {
  RunAsThreads({2, 1}, [](Group& group) {
    const auto links = PeerLinks::Open(group, AllPairs(group));
    if (!links) std::terminate();
    std::thread stopper([&] { (*links)->Stop(); });
    const auto got = (*links)->Receive(1 - group.rank());
    if (!got || *got) std::terminate();
    // No rank receives this message and no buffer has room for it. Send returns nevertheless.
    if (!(*links)->Send(1 - group.rank(), std::vector<std::byte>(64 << 20))) std::terminate();
    stopper.join();
    if (!group.Barrier()) std::terminate();
  });
  SUCCEED();
}

TEST_CASE("Addresses of a common network are tried first, loopback last", "[comm][peer_links]") {
  const auto v4 = [](uint8_t a, uint8_t b, uint8_t c, uint8_t d, int bits) {
    return PeerAddress{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d},
                       static_cast<uint8_t>(96 + bits)};
  };
  const std::vector<PeerAddress> mine = {v4(10, 1, 2, 3, 16), v4(192, 168, 9, 1, 25),
                                         v4(127, 0, 0, 1, 8)};
  const std::vector<PeerAddress> theirs = {v4(127, 0, 0, 1, 8), v4(172, 17, 0, 1, 16),
                                           v4(192, 168, 9, 128, 25), v4(192, 168, 9, 127, 25),
                                           v4(10, 1, 200, 7, 16)};
  const std::vector<PeerAddress> expected = {theirs[3], theirs[4], theirs[1], theirs[2], theirs[0]};
  CHECK(InOrderOfTry(mine, theirs) == expected);
  CHECK(Text(theirs[4]) == "10.1.200.7");
  CHECK(InOrderOfTry({}, {}).empty());
  const auto own = OwnAddresses();
  REQUIRE(own);
  CHECK_FALSE(own->empty());
}

}  // namespace
}  // namespace lmdbio::ranks
