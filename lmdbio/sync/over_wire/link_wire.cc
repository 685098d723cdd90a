// A connection carries data in one direction, from and to the caller's memory, without frames: both
// ranks know the size of each message. The other direction carries at most one notice. So a notice
// never waits behind data, and nothing is copied but the first bytes behind a header (ReadAhead).
#include "lmdbio/sync/over_wire/link_wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/group/rank_names.h"
#include "lmdbio/ranks/net/on_demand_links.h"
#include "lmdbio/ranks/net/wake_event.h"
#include "lmdbio/sync/collective/yield_backoff.h"
#include "lmdbio/sync/over_wire/message_lane.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMessagesPerCall = 16;
// The kernel waits at least 40 ms before it gives up that a connection may delay acknowledgements.
constexpr auto kAckDelayPeriod = std::chrono::milliseconds(20);
constexpr auto kSpinLimit = std::chrono::microseconds(50);
constexpr int kSpinYields = 200;
constexpr int kSleepYields = 50;
// A receiver that expects no more than this also takes the bytes behind it: a header and its values
// then need one system call.
constexpr size_t kHeaderBytesMax = 256;
// The event that stops the wire and the event of new links come first in the list for poll.
constexpr size_t kStopEntry = 0;
constexpr size_t kLinksEntry = 1;
constexpr size_t kFirstPeerEntry = 2;

// Travels against the data, at most once on each connection.
struct Notice {
  enum class NoticeKind : uint32_t { kNone = 0, kLeft = 1, kStopped = 2 };
  NoticeKind kind = NoticeKind::kNone;
  uint32_t length_bytes = 0;
  std::array<char, 1016> text = {};
};
static_assert(sizeof(Notice) == 1024);

struct Peer {
  std::string name;  // "rank 3 on node-7"
  MessageLane out;
  MessageLane in;
  ReadAhead ahead;
  Clock::time_point next_ack_delay;  // on `in`
  Notice notice;
  size_t notice_bytes = 0;  // received of `notice`
  bool has_left = false;
  std::optional<Clock::time_point> ended_at;  // when `in` ended without a notice
  bool is_requested = false;                  // `out` is open or being opened
  bool is_polled = false;                     // has an open lane
};

// Waits without sleep. Ranks of one call usually differ by microseconds, and a sleep with its
// wake-up takes several of them.
class BriefWait {
 public:
  explicit BriefWait(WaitMode mode) : mode_(mode) {}

  // Looks repeatedly, until look() returns true or the wait has become long.
  template <typename Look>
  void Until(Look look) {
    if (look()) return;
    if (mode_ == WaitMode::kSpin) {
      const auto end = Clock::now() + kSpinLimit;
      while (Clock::now() < end) {
        if (look()) return;
      }
    }
    yield_pauses_.Yield(mode_ == WaitMode::kSpin ? kSpinYields : kSleepYields, look);
  }

 private:
  const WaitMode mode_;
  YieldBackoff yield_pauses_;
};

// The links of recursive doubling in both directions, of a broadcast tree, of the ring, and of a
// pair that folds.
size_t UsualLinkCount(int rank_count) {
  return 3 * static_cast<size_t>(std::bit_width(static_cast<unsigned>(rank_count))) + 4;
}

bool IsForLater(int error) { return error == EAGAIN || error == EINTR; }

class SocketWire final : public LinkWire {
 public:
  SocketWire(ranks::Health& health, WaitMode wait_mode, UniqueFd stop_event, int rank,
             std::vector<std::string> names, std::unique_ptr<ranks::OnDemandLinks> links);
  ~SocketWire() override;
  SocketWire(const SocketWire&) = delete;
  SocketWire& operator=(const SocketWire&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  Status StartSend(int to, Bytes bytes) override { return StartSendAll(to, std::span(&bytes, 1)); }
  Status StartSendAll(int to, std::span<const Bytes> messages) override;
  Status StartReceive(int from, MutableBytes bytes) override;
  Status AwaitSend(int to) override { return Await(At(to), At(to).out); }
  Status AwaitReceive(int from) override { return Await(At(from), At(from).in); }
  Result<bool> IsSent(int to) override { return IsDone(At(to).out); }
  Result<bool> IsReceived(int from) override { return IsDone(At(from).in); }
  void Stop(const Error& why) override;
  void Sever() override;

 private:
  Peer& At(int rank) {
    LMDBIO_CHECK(rank >= 0 && rank < size() && rank != rank_);
    return peers_[static_cast<size_t>(rank)];
  }
  Status Await(Peer& peer, MessageLane& lane);
  Result<bool> IsDone(const MessageLane& lane);
  Status CheckHealth();
  static void DelayAcknowledgements(Peer& peer);
  Status AwaitBriefly(Peer& peer, MessageLane& lane);
  Status TryLane(Peer& peer, MessageLane& lane);
  Status TakeLinks();
  void Add(ranks::OnDemandLinks::OpenedLink link);
  Status CheckStopped();
  Status GoOn(std::chrono::milliseconds limit);
  Status Look(Peer& peer, short out_events, short in_events);
  Status SendSome(Peer& peer);
  Status ReceiveSome(Peer& peer);
  Status ReadNotice(Peer& peer);
  Status Died(const Peer& peer);
  Status Stopped(const std::string& words);
  void Announce(Notice::NoticeKind kind, std::string_view words);
  void SendNotice(const UniqueFd& incoming) const;

  const int rank_;
  ranks::Health& health_;
  BriefWait brief_wait_;
  UniqueFd stop_event_;
  std::unique_ptr<ranks::OnDemandLinks> links_;
  std::vector<Peer> peers_;        // [ranks]
  std::vector<int> polled_peers_;  // the ranks with an open lane
  std::vector<pollfd> polled_;     // the two events, then of each polled peer: out, in
  Clock::time_point next_health_check_ = Clock::now() + ranks::kHealthNap;

  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;   // of all below
  std::string words_;  // why it is stopped
  bool is_announced_ = false;
  Notice notice_;                                         // to the ranks that send to this one
  std::vector<ranks::OnDemandLinks::OpenedLink> unused_;  // open until this rank has gone
};

SocketWire::SocketWire(ranks::Health& health, WaitMode wait_mode, UniqueFd stop_event, int rank,
                       std::vector<std::string> names, std::unique_ptr<ranks::OnDemandLinks> links)
    : rank_(rank),
      health_(health),
      brief_wait_(wait_mode),
      stop_event_(std::move(stop_event)),
      links_(std::move(links)),
      peers_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) peers_[i].name = std::move(names[i]);
}

SocketWire::~SocketWire() { Announce(Notice::NoticeKind::kLeft, ""); }

void SocketWire::Add(ranks::OnDemandLinks::OpenedLink link) {
  Peer& peer = At(link.rank);
  const bool is_out = link.direction == ranks::OnDemandLinks::LinkDirection::kOutgoing;
  const std::lock_guard lock(mutex_);  // Announce may read the sockets in another thread
  if (!is_out) SendNotice(link.socket);
  (is_out ? peer.out : peer.in).socket = std::move(link.socket);
  if (!peer.is_polled) polled_peers_.push_back(link.rank);
  peer.is_polled = true;
}

// Takes the links that were opened by this rank or by others, and begins to use them. Messages that
// were waiting for the link start here.
Status SocketWire::TakeLinks() {
  for (ranks::OnDemandLinks::OpenedLink& link : links_->TakeOpened()) {
    Peer& peer = At(link.rank);
    if (!link.socket) {
      return Stopped(fmt::format("no connection to {} {}", peer.name, link.failure));
    }
    Add(std::move(link));
    if (peer.out.socket) LMDBIO_TRY_VOID(SendSome(peer));
  }
  return {};
}

// Sends the notice to a rank that sends to this one, if there is a notice. Requires: mutex_ is held
void SocketWire::SendNotice(const UniqueFd& incoming) const {
  if (!incoming || notice_.kind == Notice::NoticeKind::kNone) return;
  // The connection carries nothing else in this direction, so it has room for the notice.
  ::send(incoming.get(), &notice_, sizeof notice_, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Any thread. Only the first call has an effect.
void SocketWire::Announce(Notice::NoticeKind kind, std::string_view words) {
  const std::lock_guard lock(mutex_);
  if (is_announced_) return;
  is_announced_ = true;
  notice_.kind = kind;
  notice_.length_bytes = static_cast<uint32_t>(std::min(words.size(), notice_.text.size()));
  words.copy(notice_.text.data(), notice_.length_bytes);
  for (const Peer& peer : peers_) SendNotice(peer.in.socket);
  // Other ranks may have opened links that this rank has not used yet. Lock order: mutex_, then the
  // mutex of OnDemandLinks. The thread of the links never takes mutex_.
  unused_ = links_->TakeOpened();
  for (const ranks::OnDemandLinks::OpenedLink& link : unused_) {
    if (link.direction == ranks::OnDemandLinks::LinkDirection::kIncoming) SendNotice(link.socket);
  }
  links_->Close();
}

void SocketWire::Sever() {
  links_->Close();
  const std::lock_guard lock(mutex_);
  is_announced_ = true;
  for (Peer& peer : peers_) {
    peer.in.socket = UniqueFd();
    peer.out.socket = UniqueFd();
  }
}

// Ends all calls with these words, here and on the connected ranks; the first words stay. The door
// closes, so that ranks that connect later do not wait for this one.
Status SocketWire::Stopped(const std::string& words) {
  {
    const std::lock_guard lock(mutex_);
    if (words_.empty()) words_ = words;
  }
  // After the words, so that a thread which sees the flag finds them.
  is_stopped_.store(true);
  Announce(Notice::NoticeKind::kStopped, words);
  return CheckStopped();
}

Status SocketWire::CheckStopped() {
  if (!is_stopped_.load()) [[likely]]
    return {};
  const std::lock_guard lock(mutex_);
  return Fail(ErrorCode::kPeerFailed, words_);
}

void SocketWire::Stop(const Error& why) {
  // Calls under way in another thread return the words as soon as they check.
  static_cast<void>(Stopped(why.message()));
  ranks::Signal(stop_event_);
}

Status SocketWire::Died(const Peer& peer) {
  return Stopped(
      fmt::format("{} has {}", peer.name, peer.has_left ? "left" : "ended unexpectedly"));
}

Status SocketWire::StartSendAll(int to, std::span<const Bytes> messages) {
  LMDBIO_TRY_VOID(CheckStopped());
  Peer& peer = At(to);
  // If earlier messages wait for room, these wait behind them, and GoOn sends them.
  const bool is_first = peer.out.transfers.empty();
  for (const Bytes bytes : messages) {
    // The wire only reads the bytes of a message that it sends.
    peer.out.Push(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  if (peer.out.transfers.empty()) return {};
  if (!peer.is_requested) links_->Open(to);
  peer.is_requested = true;
  if (is_first && peer.out.socket) return SendSome(peer);
  return {};
}

Status SocketWire::StartReceive(int from, MutableBytes bytes) {
  LMDBIO_TRY_VOID(CheckStopped());
  Peer& peer = At(from);
  peer.in.Push(bytes.data(), bytes.size());
  peer.ahead.MoveTo(peer.in);
  return {};
}

// Sends as many bytes as a turn and the room of the connection allow.
Status SocketWire::SendSome(Peer& peer) {
  if (peer.out.transfers.empty()) return {};
  std::array<iovec, kMessagesPerCall> vectors;
  msghdr message = {};
  message.msg_iov = vectors.data();
  message.msg_iovlen = peer.out.FillVectors(vectors).count;
  const ssize_t sent = ::sendmsg(peer.out.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (IsForLater(errno)) return {};
    LMDBIO_TRY_VOID(ReadNotice(peer));  // tells more than errno
    return Died(peer);
  }
  peer.out.Advance(static_cast<size_t>(sent));
  return {};
}

// Receives as many bytes as a turn allows and the connection has.
Status SocketWire::ReceiveSome(Peer& peer) {
  if (peer.in.transfers.empty()) return {};
  std::array<iovec, kMessagesPerCall + 1> vectors;
  auto [count, asked_bytes] = peer.in.FillVectors(std::span(vectors).first(kMessagesPerCall));
  if (asked_bytes <= kHeaderBytesMax) vectors[count++] = peer.ahead.Room();
  const ssize_t got = ::readv(peer.in.socket.get(), vectors.data(), static_cast<int>(count));
  if (got < 0 && IsForLater(errno)) return {};
  if (got <= 0) {
    // If this rank also sends to the peer, a notice on that connection may give the reason. If
    // there is none yet, GoOn waits up to ranks::kReasonLimit for it, or for the reason from
    // another rank or the health watch.
    peer.ended_at = Clock::now();
    return peer.out.socket ? ReadNotice(peer) : Status();
  }
  const size_t expected_bytes = std::min(static_cast<size_t>(got), asked_bytes);
  peer.in.Advance(expected_bytes);
  peer.ahead.Take(static_cast<size_t>(got) - expected_bytes);
  // More messages may be expected than one call takes.
  peer.ahead.MoveTo(peer.in);
  return {};
}

// A notice may arrive in parts. A connection that ends before the notice is whole belongs to a rank
// that has died. A rank that has left is no failure until this rank needs it.
Status SocketWire::ReadNotice(Peer& peer) {
  while (!peer.has_left) {
    std::byte* const to = reinterpret_cast<std::byte*>(&peer.notice) + peer.notice_bytes;
    const ssize_t got =
        ::recv(peer.out.socket.get(), to, sizeof(Notice) - peer.notice_bytes, MSG_DONTWAIT);
    if (got < 0 && IsForLater(errno)) return {};
    if (got <= 0) return Died(peer);
    peer.notice_bytes += static_cast<size_t>(got);
    if (peer.notice_bytes < sizeof(Notice)) continue;
    if (peer.notice.kind == Notice::NoticeKind::kLeft) {
      peer.has_left = true;
      return {};
    }
    const size_t length = std::min<size_t>(peer.notice.length_bytes, peer.notice.text.size());
    return Stopped(std::string(peer.notice.text.data(), length));
  }
  return {};
}

Status SocketWire::Look(Peer& peer, short out_events, short in_events) {
  if (in_events != 0) LMDBIO_TRY_VOID(ReceiveSome(peer));
  // After the peer has left, SendSome tries the rest at any event. It fails when the connection has
  // ended, and names the peer.
  if ((out_events & POLLOUT) != 0 || (peer.has_left && out_events != 0)) {
    LMDBIO_TRY_VOID(SendSome(peer));
  }
  if ((out_events & ~POLLOUT) != 0) LMDBIO_TRY_VOID(ReadNotice(peer));
  return {};
}

// Waits until some bytes can be sent or received, and transfers them.
Status SocketWire::GoOn(std::chrono::milliseconds limit) {
  polled_.assign(kFirstPeerEntry + 2 * polled_peers_.size(), {-1, POLLIN, 0});
  polled_[kStopEntry].fd = stop_event_.get();
  polled_[kLinksEntry].fd = links_->event();
  for (size_t i = 0; i < polled_peers_.size(); ++i) {
    const Peer& peer = At(polled_peers_[i]);
    const bool sends = !peer.out.transfers.empty();
    const bool receives = !peer.in.transfers.empty() && !peer.ended_at;
    if (peer.ended_at && !peer.in.transfers.empty() &&
        (peer.has_left || Clock::now() - *peer.ended_at > ranks::kReasonLimit)) {
      return Died(peer);
    }
    // A closed connection makes poll return at once, every time. So it is left out of the list when
    // nothing more is expected on it; poll ignores the descriptor -1. The same holds for `ended_at`
    // above.
    const bool is_over = peer.has_left && !sends;
    const int events = (peer.has_left ? 0 : POLLIN) | (sends ? POLLOUT : 0);
    pollfd* const entries = &polled_[kFirstPeerEntry + 2 * i];
    entries[0] = {is_over ? -1 : peer.out.socket.get(), static_cast<short>(events), 0};
    entries[1] = {receives ? peer.in.socket.get() : -1, POLLIN, 0};
  }
  ::poll(polled_.data(), polled_.size(), static_cast<int>(limit.count()));
  LMDBIO_TRY_VOID(CheckStopped());
  for (size_t i = 0; i < polled_peers_.size(); ++i) {
    const pollfd* const entries = &polled_[kFirstPeerEntry + 2 * i];
    LMDBIO_TRY_VOID(Look(At(polled_peers_[i]), entries[0].revents, entries[1].revents));
  }
  return polled_[kLinksEntry].revents != 0 ? TakeLinks() : Status();
}

// Looks once at the lane of the peer, and at all lanes if some cannot wait: those with messages
// that have no room yet, and those whose link is not open.
Status SocketWire::TryLane(Peer& peer, MessageLane& lane) {
  const bool others_wait =
      !lane.socket || peer.ended_at || std::ranges::any_of(polled_peers_, [this](int other) {
        return !At(other).out.transfers.empty();
      });
  if (others_wait) return GoOn(std::chrono::milliseconds(0));
  LMDBIO_TRY_VOID(CheckStopped());
  LMDBIO_TRY_VOID(ReceiveSome(peer));
  // The message of a peer that has stopped since does not count.
  return lane.done_count > 0 && peer.out.socket ? ReadNotice(peer) : Status();
}

// No data goes back on a connection, so its acknowledgements are packets of their own. The receiver
// of a small message asks the kernel to send fewer of them, and repeats it, because the kernel
// forgets it after a pause.
void SocketWire::DelayAcknowledgements(Peer& peer) {
  const auto now = Clock::now();
  if (!peer.in.socket || now < peer.next_ack_delay) return;
  peer.next_ack_delay = now + kAckDelayPeriod;
  const int at_once = 0;
  ::setsockopt(peer.in.socket.get(), IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
}

Status SocketWire::AwaitBriefly(Peer& peer, MessageLane& lane) {
  DelayAcknowledgements(peer);
  Status tried;
  brief_wait_.Until([&] {
    tried = TryLane(peer, lane);
    return !tried || lane.done_count > 0;
  });
  return tried;
}

Status SocketWire::Await(Peer& peer, MessageLane& lane) {
  LMDBIO_TRY_VOID(CheckStopped());
  LMDBIO_CHECK(lane.done_count > 0 || !lane.transfers.empty());
  if (lane.done_count == 0) LMDBIO_TRY_VOID(AwaitBriefly(peer, lane));
  while (lane.done_count == 0) {
    LMDBIO_TRY_VOID(CheckHealth());
    LMDBIO_TRY_VOID(GoOn(ranks::kHealthNap));
  }
  --lane.done_count;
  return {};
}

Result<bool> SocketWire::IsDone(const MessageLane& lane) {
  LMDBIO_TRY_VOID(CheckStopped());
  LMDBIO_CHECK(lane.done_count > 0 || !lane.transfers.empty());
  if (lane.done_count > 0) return true;
  LMDBIO_TRY_VOID(CheckHealth());
  LMDBIO_TRY_VOID(GoOn(std::chrono::milliseconds(0)));
  return lane.done_count > 0;
}

Status SocketWire::CheckHealth() {
  const auto now = Clock::now();
  if (now < next_health_check_) return {};
  next_health_check_ = now + ranks::kHealthNap;
  Status health = health_.Check();
  return health ? std::move(health) : Stopped(health.error().message());
}

}  // namespace

Result<std::unique_ptr<LinkWire>> OpenLinkWire(ranks::Group& group, ranks::Health& health,
                                               const LinkWireOptions& options) {
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  Status made = stop_event ? Status()
                           : Fail(ErrorCode::kResourceExhausted,
                                  fmt::format("eventfd: {}", std::strerror(errno)), errno);
  // All ranks agree before the collective calls below, so a rank without an event leaves none
  // waiting.
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(made)));
  LMDBIO_TRY(auto names, ranks::GatherRankNames(group, options.known_as));
  LMDBIO_TRY(auto links, ranks::OnDemandLinks::Create(group, UsualLinkCount(group.size())));
  return std::make_unique<SocketWire>(health, options.wait_mode, std::move(stop_event),
                                      group.rank(), std::move(names), std::move(links));
}

}  // namespace lmdbio::sync
