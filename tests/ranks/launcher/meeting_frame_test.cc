// Goal: bytes of a foreign program at a meeting, or in its store, are refused and never believed.
#include "lmdbio/ranks/launcher/meeting_frame.h"

#include <poll.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "tests/ranks/launcher/launched_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::ranks {
namespace {

using test::FreePorts;
using test::LaunchAt;

template <typename T>
std::vector<std::byte> BytesOf(const T& value) {
  const Bytes bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("A hello decodes to what was encoded, and is refused if it is cut or too long",
          "[launcher]") {
  const std::vector<std::byte> entry(20, std::byte{7});
  const int wanted[] = {3, -1};
  const GuestIntroduction said{.job = 5, .meeting = 2, .rank = 1, .size = 4};
  const std::vector<std::byte> body = EncodeHello(said, entry, wanted);
  const auto hello = DecodeHello(body);
  REQUIRE(hello);
  CHECK(hello->said.job == 5);
  CHECK(hello->said.rank == 1);
  CHECK(hello->entry == entry);
  CHECK(hello->wanted == std::vector<int32_t>{3, -1});
  for (size_t size = 0; size < body.size(); ++size)
    CHECK_FALSE(DecodeHello(Bytes(body).first(size)));
  std::vector<std::byte> longer = body;
  longer.push_back({});
  CHECK_FALSE(DecodeHello(longer));
  // Counts whose product with the size of a rank wraps around in 32 bits.
  GuestIntroduction huge = said;
  huge.wanted_count = 1U << 30;
  CHECK_FALSE(DecodeHello(BytesOf(huge)));
  const std::vector<std::byte> large(kMeetingEntryBytesMax + 1);
  CHECK_FALSE(DecodeHello(EncodeHello(said, large, {})));
}

TEST_CASE("Entries decode to what was encoded, and are refused if they are cut or too many",
          "[launcher]") {
  const std::vector<std::vector<std::byte>> entries = {std::vector<std::byte>(3, std::byte{1}), {}};
  JobKey key{};
  key.back() = std::byte{9};
  const std::vector<std::byte> body = EncodeEntries(key, entries);
  const auto met = DecodeEntries(body, entries.size());
  REQUIRE(met);
  CHECK(met->key == key);
  CHECK(met->entries == entries);
  for (size_t size = 0; size < body.size(); ++size) {
    CHECK_FALSE(DecodeEntries(Bytes(body).first(size), entries.size()));
  }
  CHECK_FALSE(DecodeEntries(body, 1));
  CHECK_FALSE(DecodeEntries(body, 3));
}

TEST_CASE("Addresses of a foreign program are refused", "[launcher]") {
  Reachability there;
  there.address_count = Reachability::kAddressesMax;
  CHECK(ReachabilityIn(BytesOf(there)));
  there.address_count = Reachability::kAddressesMax + 1;
  CHECK_FALSE(ReachabilityIn(BytesOf(there)));
  CHECK_FALSE(ReachabilityIn(Bytes(BytesOf(Reachability())).first(5)));
  // Rank 0 finds them in the store as those of rank 1.
  there.address_count = 65535;
  test::MemoryStore store;
  test::Must(store.Handle().set("lmdbio/0/rank/1", BytesOf(there)));
  const auto group = LaunchedGroup(LaunchAt(1, 0, 2), store.Handle());
  REQUIRE_FALSE(group);
  CHECK(group.error().message() ==
        "rank 1 has brought no addresses to the meeting, but other bytes");
}

// Answers the next guest that comes: it is welcome, and then hears of a failure.
void FailNextGuest(const UniqueFd& listener, uint64_t code) {
  pollfd polled{listener.get(), POLLIN, 0};
  ::poll(&polled, 1, 10'000);
  MeetingConnection guest(AcceptLink(listener));
  while (!guest.Receive() && !guest.is_broken()) {
    pollfd one{guest.fd(), POLLIN, 0};
    ::poll(&one, 1, 10'000);
  }
  guest.Send(MeetingWord::kComeIn);
  const std::string words = "no luck";
  guest.Send(MeetingWord::kFailure, code, std::as_bytes(std::span(words)));
  pollfd last{guest.fd(), POLLIN, 0};
  ::poll(&last, 1, 10'000);  // the guest hangs up
}

TEST_CASE("A failure with a number of no error code is a failure", "[launcher]") {
  const uint64_t code = GENERATE(as<uint64_t>{}, 0, 1, 10, 11, uint64_t{1} << 32);
  const uint16_t port = FreePorts(1);
  PeerAddress address = LoopbackAddresses().front();
  address.port = port;
  const UniqueFd listener = test::Good(ListenAtPort(address));
  std::thread host([&] { FailNextGuest(listener, code); });
  const auto group = LaunchedGroup(LaunchAt(port, 1, 2));
  host.join();
  REQUIRE_FALSE(group);
  CHECK(group.error().message() == "no luck");
  CHECK(group.error().code() == (code == 1 ? ErrorCode::kInvalidArgument : ErrorCode::kPeerFailed));
}

}  // namespace
}  // namespace lmdbio::ranks
