// Goal: a rank that sends malformed parts of a collective call is named, and writes nowhere.
// Method: one rank of a LinkedGroup; the test sends what its neighbours would send.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "lmdbio/ranks/linked/linked_group.h"
#include "tests/ranks/net/foreign_links.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

enum ForgedCall : uint32_t { kBarrier = 1, kBroadcast = 2, kAllGather = 3 };

void Append(std::vector<std::byte>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// A message of the first collective call.
std::vector<std::byte> MessageOf(ForgedCall kind, int32_t root, uint64_t call_bytes, Bytes body) {
  struct {
    uint32_t kind;
    int32_t root;
    uint64_t number;
    uint64_t bytes;
  } const head{kind, root, 0, call_bytes};
  std::vector<std::byte> message;
  Append(message, std::as_bytes(std::span(&head, 1)));
  Append(message, body);
  return message;
}

// The parts of ranks, each of `part_bytes`, as they go up the tree.
std::vector<std::byte> PartsOf(const std::vector<int32_t>& ranks, size_t part_bytes) {
  std::vector<std::byte> parts;
  for (const int32_t rank : ranks) {
    Append(parts, std::as_bytes(std::span(&rank, 1)));
    Append(parts, std::vector<std::byte>(part_bytes, std::byte{static_cast<uint8_t>(rank)}));
  }
  return parts;
}

std::string WhyNot(const Status& status) { return status ? "" : status.error().message(); }

// AllGather of 8 bytes at rank 0 of 3, whose children send these bodies.
std::string GatherAtRoot(const std::array<std::vector<std::byte>, 2>& bodies) {
  const int neighbours[] = {1, 2};
  test::ForeignLinks links(3, neighbours);
  for (size_t child = 0; child < 2; ++child) {
    const auto message = MessageOf(kAllGather, 0, 8, bodies[child]);
    links.SendFrame(child, 1, message.size(), message);
  }
  LinkedGroup group(0, 3, links.TakeLinks(), {});
  const std::vector<std::byte> mine(8, std::byte{0});
  const auto all = group.AllGather(mine);
  if (!all) return all.error().message();
  std::vector<std::byte> expected;
  for (uint8_t rank = 0; rank < 3; ++rank) Append(expected, std::vector(8, std::byte{rank}));
  CHECK(*all == expected);
  return "";
}

TEST_CASE("Parts of ranks that do not exist, or exist twice, are refused", "[launcher]") {
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({2}, 8)}).empty());
  const std::string not_each = "the parts of a collective call are not one of each rank";
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({3}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({-1}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({1 << 30}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({0}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({1}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1, 2}, 8), PartsOf({2}, 8)}) == not_each);
  CHECK(GatherAtRoot({PartsOf({1}, 8), {}}) == not_each);
  const std::string malformed = "rank 2 has sent a malformed part of a collective call";
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({2}, 7)}) == malformed);
  CHECK(GatherAtRoot({PartsOf({1}, 8), PartsOf({2, 2, 2, 2}, 8)}) == malformed);
}

TEST_CASE("Values of another size from the rank above are refused", "[launcher]") {
  const size_t size = GENERATE(0, 15, 16, 17, 4000);
  const std::vector<std::byte> body(size);
  const int neighbours[] = {0};
  test::ForeignLinks links(2, neighbours);
  const bool broadcasts = GENERATE(false, true);
  const auto message =
      MessageOf(broadcasts ? kBroadcast : kAllGather, 0, broadcasts ? 16 : 8, body);
  links.SendFrame(0, 1, message.size(), message);
  LinkedGroup group(1, 2, links.TakeLinks(), {});
  std::vector<std::byte> mine(broadcasts ? 16 : 8);
  const std::string why = broadcasts ? WhyNot(group.Broadcast(0, mine))
                                     : WhyNot(group.AllGather(mine).map([](const auto&) {}));
  CHECK(why == (size == 16 ? "" : "rank 0 has sent a malformed part of a collective call"));
}

TEST_CASE("A message without a whole head is refused", "[launcher]") {
  const int neighbours[] = {0};
  test::ForeignLinks links(2, neighbours);
  links.SendFrame(0, 1, 23, std::vector<std::byte>(23));
  LinkedGroup group(1, 2, links.TakeLinks(), {});
  CHECK(WhyNot(group.Barrier()) == "rank 0 has sent a malformed part of a collective call");
}

// Rank 0 has given up because of rank 5, which the meeting place tells a moment later.
TEST_CASE("Before there is a watch, the meeting place knows why a neighbour has gone",
          "[launcher]") {
  const int neighbours[] = {0};
  int look_count = 0;
  const auto check = [&]() -> Status {
    if (++look_count < 4) return {};
    return Fail(ErrorCode::kPeerFailed, "rank 5 has ended during the meeting of the ranks");
  };
  const auto group = [&] {
    test::ForeignLinks links(2, neighbours);
    return LinkedGroup(1, 2, links.TakeLinks(), check);
  };  // its ends are closed
  CHECK(WhyNot(group().Barrier()) == "rank 5 has ended during the meeting of the ranks");
}

}  // namespace
}  // namespace lmdbio::ranks
