// tests/fuzz/links_fuzz.cc - any bytes from the other end of a connection between ranks.
//
// Input: byte 0 chooses the protocol, byte 1 the size of the pieces in which bytes arrive. The rest
// are the bytes: frames of a link, frames of a meeting, the body of a hello or of entries, the
// introduction of a stranger, the address of a rank, or the parts of collective calls.
// Oracle: the sanitizers; a second reading of the same bytes, which says what must arrive and what
// is refused; what decodes encodes to the same bytes. No call waits after the end of a connection,
// and a connection keeps no more bytes than it was sent.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/linked/linked_group.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/peer_door.h"
#include "lmdbio/ranks/net/peer_links.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/foreign_connection.h"
#include "tests/fuzz/input_parts.h"

namespace lmdbio::test {
namespace {

using ranks::JobKey;
using ranks::PeerLinks;

// The frames of PeerLinks and the heads of LinkedGroup, as other code would write them.
struct LinkFrame {
  uint32_t kind = 1;
  int32_t error_number = 0;
  uint64_t length_bytes = 0;
};
constexpr uint32_t kMessage = 1;
constexpr uint32_t kFailure = 2;
constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;
struct CollectiveHead {
  uint32_t kind = 0;
  int32_t root = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
};

template <typename T>
void Append(std::vector<std::byte>& to, const T& value) {
  const Bytes bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Reads the frames of a link once more, one after the other.
class ExpectedFrames {
 public:
  explicit ExpectedFrames(Bytes input) : rest_(input) {}

  // Compares the result of the next Receive. False if no later one can be good.
  bool Check(const Result<std::optional<std::vector<std::byte>>>& got) {
    if (got) LMDBIO_CHECK(got->has_value());  // nothing has called Stop
    if (!got) CheckMessage(got.error());
    LinkFrame frame;
    bool is_whole = rest_.size() >= sizeof frame;
    if (is_whole) {
      std::memcpy(&frame, rest_.data(), sizeof frame);
      is_whole = (frame.kind == kMessage || frame.kind == kFailure) &&
                 frame.length_bytes <= kMessageBytesMax &&
                 frame.length_bytes <= rest_.size() - sizeof frame;
    }
    LMDBIO_CHECK(got.has_value() == (is_whole && frame.kind == kMessage));
    if (!is_whole) return false;
    const Bytes body = rest_.subspan(sizeof frame, frame.length_bytes);
    rest_ = rest_.subspan(sizeof frame + body.size());
    if (got) LMDBIO_CHECK(std::ranges::equal(**got, body));
    if (!got && !body.empty()) LMDBIO_CHECK(got.error().error_number() == frame.error_number);
    return true;
  }

 private:
  Bytes rest_;
};

std::unique_ptr<PeerLinks> Adopt(ranks::RendezvousResult met, int rank_count) {
  std::vector<std::string> names;
  for (int rank = 0; rank < rank_count; ++rank) names.push_back("rank " + std::to_string(rank));
  auto links = PeerLinks::Adopt(std::move(met), std::move(names));
  LMDBIO_CHECK(links.has_value());
  return std::move(*links);
}

void ReceiveFrames(Bytes input, size_t piece_bytes) {
  ForeignConnection connection;
  ranks::RendezvousResult met;
  met.incoming[1] = connection.TakeOurs();
  const auto links = Adopt(std::move(met), 2);
  ExpectedFrames expected(input);
  bool goes_on = true;
  connection.SendInPieces(input, piece_bytes, [&] {
    while (goes_on && links->HasMessage(1)) goes_on = expected.Check(links->Receive(1));
  });
  LMDBIO_CHECK(!goes_on);  // the end of the connection is the last that it hears
}

// The messages of a meeting, and then nothing for ever.
void ReceiveMeeting(Bytes input, size_t piece_bytes) {
  using ranks::MeetingConnection;
  using ranks::MeetingHead;
  ForeignConnection connection;
  MeetingConnection ours(connection.TakeOurs());
  Bytes rest = input;
  bool is_foreign = false;
  connection.SendInPieces(input, piece_bytes, [&] {
    while (const auto message = ours.Receive()) {
      LMDBIO_CHECK(!is_foreign && rest.size() >= sizeof(MeetingHead));
      MeetingHead head;
      std::memcpy(&head, rest.data(), sizeof head);
      LMDBIO_CHECK(head.magic == MeetingHead::kMagic && head.value == message->head.value);
      LMDBIO_CHECK(head.bytes <= MeetingConnection::kBodyBytesMax);
      LMDBIO_CHECK(std::ranges::equal(message->body, rest.subspan(sizeof head, head.bytes)));
      rest = rest.subspan(sizeof head + head.bytes);
      (void)ranks::DecodeHello(message->body);
      (void)ranks::DecodeEntries(message->body, head.value % 8);
    }
    is_foreign = ours.is_broken();
  });
  LMDBIO_CHECK(ours.is_broken());
}

// `wanted_count` of entries is not a part of their bytes.
void DecodeBodies(InputParts in) {
  const uint64_t wanted_count = in.TakeBelow(5);
  const std::vector<std::byte> body(in.rest().begin(), in.rest().end());
  if (const auto hello = ranks::DecodeHello(body)) {
    const std::vector<int> wanted(hello->wanted.begin(), hello->wanted.end());
    LMDBIO_CHECK(ranks::EncodeHello(hello->said, hello->entry, wanted) == body);
  }
  if (const auto met = ranks::DecodeEntries(body, wanted_count)) {
    LMDBIO_CHECK(met->entries.size() == wanted_count);
    LMDBIO_CHECK(ranks::EncodeEntries(met->key, met->entries) == body);
  }
}

// The addresses of another rank, as a meeting brings them. The first byte decides whether they have
// the right size.
void OrderAddresses(InputParts in) {
  using ranks::Reachability;
  std::vector<std::byte> bytes(in.TakeBelow(8) == 0 ? in.TakeBelow(255) : sizeof(Reachability));
  const Bytes given = in.TakeBytes(bytes.size());
  std::ranges::copy(given, bytes.begin());
  const std::optional<Reachability> there = ranks::ReachabilityIn(bytes);
  if (!there) return;
  ranks::JobAddresses job;
  job.own = ranks::LoopbackAddresses();
  job.of_ranks = {*there};
  const auto order = job.InOrderFor(0);
  LMDBIO_CHECK(order.size() == there->address_count);
  for (const ranks::PeerAddress& address : order) LMDBIO_CHECK(!ranks::Text(address).empty());
}

// A door at the loopback, which stays open for all inputs.
ranks::PeerDoor& Door() {
  static ranks::PeerDoor door = [] {
    const std::vector<ranks::PeerAddress> loopback = ranks::LoopbackAddresses();
    auto opened = ranks::PeerDoor::Open(std::span(loopback).first(1));
    LMDBIO_CHECK(opened.has_value());
    return std::move(*opened);
  }();
  return door;
}

// A connection that leaves no port behind when it is closed.
UniqueFd ConnectToDoor() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const linger at_once{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(Door().reachability().addresses[0].port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LMDBIO_CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

// A stranger says `input`. The key of the job is all zeros.
void VisitDoor(Bytes input) {
  using ranks::PeerDoor;
  input = input.first(std::min<size_t>(input.size(), 256));
  const UniqueFd stranger = ConnectToDoor();
  if (!input.empty()) {
    LMDBIO_CHECK(::send(stranger.get(), input.data(), input.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(input.size()));
  }
  ::shutdown(stranger.get(), SHUT_WR);
  ranks::Introduction said;
  const bool is_whole = input.size() >= sizeof said;
  if (is_whole) std::memcpy(&said, input.data(), sizeof said);
  const bool is_peer = is_whole && said.key == JobKey{};
  std::vector<PeerDoor::Visitor> visitors;
  bool is_over = false;
  while (!is_over) {
    std::vector<pollfd> polled;
    Door().AddTo(polled, PeerDoor::Clock::now());
    LMDBIO_CHECK(::poll(polled.data(), polled.size(), 10'000) > 0);  // far above the time it takes
    visitors = Door().Serve(JobKey{}, PeerDoor::Clock::now());
    is_over = !visitors.empty() || Door().stranger_count() == 0;
  }
  LMDBIO_CHECK(visitors.size() == (is_peer ? 1 : 0));
  for (const PeerDoor::Visitor& visitor : visitors) {
    LMDBIO_CHECK(visitor.from == said.from && visitor.to == said.to);
    (void)PeerDoor::Answer(visitor);  // it may have hung up
  }
}

struct PlannedCall {
  uint32_t kind = 0;  // 1 barrier, 2 broadcast, 3 allgather
  int32_t root = 0;
  std::vector<std::byte> mine;
};

// One rank of a LinkedGroup, whose neighbours are foreign. Their heads are mostly right, their
// bodies are any bytes.
class TriedGroup {
 public:
  explicit TriedGroup(InputParts& in)
      : in_(in),
        size_(static_cast<int>(2 + in.TakeBelow(7))),
        rank_(static_cast<int>(in.TakeBelow(static_cast<uint64_t>(size_)))) {
    for (uint64_t i = 1 + in.TakeBelow(3); i > 0; --i) {
      PlannedCall call;
      call.kind = static_cast<uint32_t>(1 + in.TakeBelow(3));
      if (call.kind == 2)
        call.root = static_cast<int32_t>(in.TakeBelow(static_cast<uint64_t>(size_)));
      if (call.kind != 1) call.mine.resize(in.TakeBelow(20), std::byte{0x5A});
      calls_.push_back(std::move(call));
    }
  }

  void Run() {
    ranks::RendezvousResult met;
    const auto [parent, children] = ranks::LinkedGroup::Neighbours(rank_, size_);
    for (const int child : children) Meet(child, met);
    if (parent) Meet(*parent, met);
    ranks::LinkedGroup group(rank_, size_, Adopt(std::move(met), size_), {});
    for (PlannedCall& call : calls_) {
      const Status status = Make(group, call);
      if (!status) return CheckMessage(status.error());
    }
  }

 private:
  void Meet(int neighbour, ranks::RendezvousResult& met) {
    ForeignConnection& sends = connections_.emplace_back();
    met.incoming[neighbour] = sends.TakeOurs();
    met.outgoing[neighbour] = connections_.emplace_back().TakeOurs();
    for (size_t number = 0; number < calls_.size(); ++number) {
      sends.Send(Part(neighbour, calls_[number], number));
    }
    sends.End();
  }

  // Mostly a part of the right size, so that the bytes in it count.
  std::vector<std::byte> Part(int neighbour, const PlannedCall& call, uint64_t number) {
    CollectiveHead head{call.kind, call.root, number, call.mine.size()};
    if (in_.TakeBelow(32) == 1) head.number = in_.Take<uint8_t>();
    std::vector<std::byte> body;
    const bool comes_down = neighbour < rank_;
    if (in_.TakeBelow(8) == 1) {
      const Bytes any = in_.TakeShort();
      body.assign(any.begin(), any.end());
    } else if (call.kind == 2) {
      body.resize(call.mine.size());
    } else if (comes_down) {
      body.resize(call.mine.size() * static_cast<size_t>(size_));
    } else {
      for (uint64_t count = 1 + in_.TakeBelow(4); count > 0; --count) {
        Append(body, static_cast<int32_t>(in_.Take<int8_t>()));
        body.resize(body.size() + call.mine.size());
      }
    }
    LinkFrame frame{in_.TakeBelow(32) == 1 ? kFailure : kMessage, 0, sizeof head + body.size()};
    std::vector<std::byte> bytes;
    Append(bytes, frame);
    Append(bytes, head);
    bytes.insert(bytes.end(), body.begin(), body.end());
    return bytes;
  }

  Status Make(ranks::LinkedGroup& group, PlannedCall& call) const {
    if (call.kind == 1) return group.Barrier();
    if (call.kind == 2) return group.Broadcast(call.root, call.mine);
    LMDBIO_TRY(const auto all, group.AllGather(call.mine));
    LMDBIO_CHECK(all.size() == call.mine.size() * static_cast<size_t>(size_));
    return {};
  }

  InputParts& in_;
  int size_;
  int rank_;
  std::vector<PlannedCall> calls_;
  std::deque<ForeignConnection> connections_;
};

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size < 2) return 0;
  constexpr size_t kMost = 64 << 10;  // what the buffer of a connection surely holds
  test::InputParts rest(std::as_bytes(std::span(data, std::min(size, kMost))).subspan(2));
  const size_t piece_bytes = data[1] == 0 ? kMost : data[1];
  switch (data[0] % 6) {
    case 0:
      test::ReceiveFrames(rest.rest(), piece_bytes);
      break;
    case 1:
      test::ReceiveMeeting(rest.rest(), piece_bytes);
      break;
    case 2:
      test::DecodeBodies(rest);
      break;
    case 3:
      test::OrderAddresses(rest);
      break;
    case 4:
      test::VisitDoor(rest.rest());
      break;
    default:
      test::TriedGroup(rest).Run();
  }
  return 0;
}
