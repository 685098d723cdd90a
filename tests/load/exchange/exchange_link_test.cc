// Goal: frames and bytes arrive whole and in order, however the connection cuts them; anything else
// ends the link.
#include "lmdbio/load/exchange/exchange_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "tests/load/exchange/socket_pair.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

using Kind = ExchangeFrame::Kind;
using Frames = std::vector<ExchangeFrame>;

// With small buffers.
std::pair<UniqueFd, UniqueFd> SmallSocketPair() {
  constexpr int kBufferBytes = 5000;
  std::pair<UniqueFd, UniqueFd> ends = SocketPair();
  for (const UniqueFd* end : {&ends.first, &ends.second}) {
    ::setsockopt(end->get(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  }
  return ends;
}

// Takes every frame but replies.
ExchangeLink::Receiver NoReplies(Frames& received) {
  return {[](const ExchangeFrame&) { return MutableBytes(); },
          [&](const ExchangeFrame& frame) {
            received.push_back(frame);
            return true;
          }};
}

bool IsSame(const ExchangeFrame& a, const ExchangeFrame& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_CASE("Frames and bytes arrive in order through small buffers", "[exchange]") {
  test::Random random(GENERATE(range(1, 6)));
  auto [a, b] = SmallSocketPair();
  ExchangeLink from(std::move(a));
  ExchangeLink to(std::move(b));
  Frames posted;
  std::vector<std::vector<std::byte>> bodies;
  std::map<uint32_t, std::vector<std::byte>> arrived;  // by id
  for (uint32_t id = 0; id < 200; ++id) {
    const bool is_reply = random.Below(2) == 0;
    const uint64_t length = random.Between(1, random.Below(4) == 0 ? 40'000 : 100);
    posted.push_back({is_reply ? Kind::kReply : Kind::kRequest, id, random.Below(1000), length});
    const std::string text = random.BytesOf(is_reply ? length : 0);
    const Bytes bytes = std::as_bytes(std::span(text));
    bodies.emplace_back(bytes.begin(), bytes.end());
    if (is_reply) arrived[id].resize(length);
  }
  for (size_t i = 0; i < posted.size(); ++i) from.Post(posted[i], bodies[i]);
  Frames sent;
  Frames received;
  ExchangeLink::Receiver receiver = NoReplies(received);
  receiver.destination_of = [&](const ExchangeFrame& reply) {
    return MutableBytes(arrived[reply.id]);
  };
  while (received.size() < posted.size()) {
    REQUIRE(from.Flush(sent));
    REQUIRE(to.Receive(receiver));
  }
  CHECK(from.moved_bytes() == to.moved_bytes());
  CHECK_FALSE(from.has_waiting());
  REQUIRE(sent.size() == posted.size());
  for (size_t i = 0; i < posted.size(); ++i) {
    CAPTURE(i);
    REQUIRE(IsSame(sent[i], posted[i]));
    REQUIRE(IsSame(received[i], posted[i]));
    if (posted[i].kind == Kind::kReply) REQUIRE(arrived[posted[i].id] == bodies[i]);
  }
}

TEST_CASE("A reply that was not asked for ends the link", "[exchange]") {
  auto [a, b] = SmallSocketPair();
  ExchangeLink from(std::move(a));
  ExchangeLink to(std::move(b));
  const std::array<std::byte, 10> body{};
  from.Post({Kind::kRequest, 1, 2, 3});
  from.Post({Kind::kReply, 2, 0, 10}, body);
  Frames sent;
  Frames received;
  REQUIRE(from.Flush(sent));
  CHECK_FALSE(to.Receive(NoReplies(received)));
  CHECK(received.size() == 1);  // the request before it counts
}

TEST_CASE("No frame is looked at behind a malformed one", "[exchange]") {
  auto [a, b] = SmallSocketPair();
  ExchangeLink from(std::move(a));
  ExchangeLink to(std::move(b));
  for (uint32_t id = 0; id < 3; ++id) from.Post({Kind::kRequest, id, 0, 1});
  Frames sent;
  Frames received;
  REQUIRE(from.Flush(sent));
  ExchangeLink::Receiver receiver = NoReplies(received);
  receiver.take = [&](const ExchangeFrame& frame) {
    received.push_back(frame);
    return frame.id < 1;
  };
  CHECK_FALSE(to.Receive(receiver));
  CHECK(received.size() == 2);
}

TEST_CASE("A closed link ends for the other reader, also if a child has the socket", "[exchange]") {
  auto [a, b] = SmallSocketPair();
  const UniqueFd of_child(::dup(a.get()));
  ExchangeLink link(std::move(a));
  CHECK(link.Close().empty());
  ExchangeLink other(std::move(b));
  Frames received;
  CHECK_FALSE(other.Receive(NoReplies(received)));
}

TEST_CASE("A link without its other end is gone, and gives its bodies back", "[exchange]") {
  auto [a, b] = SmallSocketPair();
  ExchangeLink link(std::move(a));
  { const UniqueFd closed = std::move(b); }
  Frames frames;
  CHECK_FALSE(link.Receive(NoReplies(frames)));
  const std::array<std::byte, 10> body{};
  link.Post({Kind::kReply, 2, 0, 10}, body);
  CHECK_FALSE(link.Flush(frames));
  CHECK(frames.empty());
  CHECK(link.Close().size() == 1);
  CHECK_FALSE(link.has_waiting());
}

}  // namespace
}  // namespace lmdbio::load
