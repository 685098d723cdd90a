#include "lmdbio/sync/over_wire/link_wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/rank_names.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiecesPerCall = 16;
constexpr auto kSpinLimit = std::chrono::microseconds(50);
// A host that vanishes without a word is noticed after this, if nobody else notices.
constexpr int kIdleSeconds = 20;
constexpr int kProbeSeconds = 5;
constexpr int kProbeCount = 4;

// Travels against the data, at most once on each connection.
struct News {
  enum class FrameKind : uint32_t { kNone = 0, kLeft = 1, kStopped = 2 };
  FrameKind kind = FrameKind::kNone;
  uint32_t length_bytes = 0;
  std::array<char, 1016> text = {};
};
static_assert(sizeof(News) == 1024);

struct PendingTransfer {
  std::byte* data = nullptr;
  size_t left_bytes = 0;
};

// Pieces in one direction between this rank and another.
struct Lane {
  UniqueFd socket;
  std::deque<PendingTransfer> pieces;  // not done; the first may have begun
  uint64_t done_count = 0;             // done, and not awaited

  void Push(std::byte* data, size_t bytes) {
    pieces.push_back({data, bytes});
    Settle();
  }
  void Advance(size_t bytes) {
    for (auto piece = pieces.begin(); bytes > 0; ++piece) {
      const size_t part = std::min(bytes, piece->left_bytes);
      piece->data += part;
      piece->left_bytes -= part;
      bytes -= part;
    }
    Settle();
  }
  void Settle() {
    while (!pieces.empty() && pieces.front().left_bytes == 0) {
      pieces.pop_front();
      ++done_count;
    }
  }
  size_t FillVectors(std::span<iovec> vectors) const {
    const size_t count = std::min(pieces.size(), vectors.size());
    for (size_t i = 0; i < count; ++i) vectors[i] = {pieces[i].data, pieces[i].left_bytes};
    return count;
  }
};

struct Peer {
  std::string name;  // "rank 3 on node-7"
  Lane out;
  Lane in;
  News news;
  size_t news_bytes = 0;  // of `news`, that have come
  bool has_left = false;
};

void Tune(const UniqueFd& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbeCount);
}

bool IsForLater(int error) { return error == EAGAIN || error == EINTR; }

class SocketWire final : public LinkWire {
 public:
  SocketWire(int rank, ranks::Health& health, WaitMode wait_mode, UniqueFd stop_event,
             std::vector<std::string> names, ranks::RendezvousResult met);
  ~SocketWire() override;
  SocketWire(const SocketWire&) = delete;
  SocketWire& operator=(const SocketWire&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  Status StartSend(int to, Bytes bytes) override;
  Status StartReceive(int from, MutableBytes bytes) override;
  Status AwaitSend(int to) override { return Await(At(to).out); }
  Status AwaitReceive(int from) override { return Await(At(from).in); }
  void Stop(const Error& why) override;
  void Sever() override;

 private:
  Peer& At(int rank) {
    LMDBIO_CHECK(rank >= 0 && rank < size() && rank != rank_);
    return peers_[static_cast<size_t>(rank)];
  }
  Status Await(Lane& lane);
  Status CheckStopped();
  Status GoOn(std::chrono::milliseconds limit);
  Status Look(Peer& peer, short out_events, short in_events);
  Status SendSome(Peer& peer);
  Status ReceiveSome(Peer& peer);
  Status ReadNews(Peer& peer);
  Status Died(const Peer& peer);
  Status Keep(const std::string& words);
  void Announce(News::FrameKind kind, std::string_view words);

  const int rank_;
  ranks::Health& health_;
  const WaitMode wait_mode_;
  UniqueFd stop_event_;
  std::vector<Peer> peers_;
  std::vector<pollfd> polled_;  // the stop event, then of each peer: out, in
  Clock::time_point next_health_check_ = Clock::now() + ranks::kHealthNap;

  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;   // of all below
  std::string words_;  // why it is stopped
  bool is_announced_ = false;
};

SocketWire::SocketWire(int rank, ranks::Health& health, WaitMode wait_mode, UniqueFd stop_event,
                       std::vector<std::string> names, ranks::RendezvousResult met)
    : rank_(rank),
      health_(health),
      wait_mode_(wait_mode),
      stop_event_(std::move(stop_event)),
      peers_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) peers_[i].name = std::move(names[i]);
  for (auto& [peer, socket] : met.outgoing) {
    Tune(socket);
    At(peer).out.socket = std::move(socket);
  }
  for (auto& [peer, socket] : met.incoming) {
    Tune(socket);
    At(peer).in.socket = std::move(socket);
  }
  polled_.assign(1 + 2 * peers_.size(), {-1, 0, 0});
  polled_[0] = {stop_event_.get(), POLLIN, 0};
}

SocketWire::~SocketWire() { Announce(News::FrameKind::kLeft, ""); }

void SocketWire::Announce(News::FrameKind kind, std::string_view words) {
  const std::lock_guard lock(mutex_);
  if (is_announced_) return;
  is_announced_ = true;
  News news;
  news.kind = kind;
  news.length_bytes = static_cast<uint32_t>(std::min(words.size(), news.text.size()));
  words.copy(news.text.data(), news.length_bytes);
  for (const Peer& peer : peers_) {
    // Nothing else goes this way, so there is room for it.
    if (peer.in.socket) {
      ::send(peer.in.socket.get(), &news, sizeof news, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
}

void SocketWire::Sever() {
  const std::lock_guard lock(mutex_);
  is_announced_ = true;
  for (Peer& peer : peers_) {
    peer.in.socket = UniqueFd();
    peer.out.socket = UniqueFd();
  }
}

// The first words stay.
Status SocketWire::Keep(const std::string& words) {
  {
    const std::lock_guard lock(mutex_);
    if (words_.empty()) words_ = words;
  }
  is_stopped_.store(true);
  Announce(News::FrameKind::kStopped, words);
  return CheckStopped();
}

Status SocketWire::CheckStopped() {
  if (!is_stopped_.load()) [[likely]]
    return {};
  const std::lock_guard lock(mutex_);
  return Fail(ErrorCode::kPeerFailed, words_);
}

void SocketWire::Stop(const Error& why) {
  // Its own calls learn of it as those of a peer do.
  static_cast<void>(Keep(why.message()));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof one);
}

Status SocketWire::Died(const Peer& peer) {
  return Keep(fmt::format("{} has {}", peer.name, peer.has_left ? "left" : "ended unexpectedly"));
}

Status SocketWire::StartSend(int to, Bytes bytes) {
  LMDBIO_TRY_VOID(CheckStopped());
  Peer& peer = At(to);
  const bool is_first = peer.out.pieces.empty();
  // A sent piece is only read.
  peer.out.Push(const_cast<std::byte*>(bytes.data()), bytes.size());
  if (is_first && !bytes.empty()) return SendSome(peer);
  return {};
}

Status SocketWire::StartReceive(int from, MutableBytes bytes) {
  LMDBIO_TRY_VOID(CheckStopped());
  At(from).in.Push(bytes.data(), bytes.size());
  return {};
}

// As much as there is room for.
Status SocketWire::SendSome(Peer& peer) {
  while (!peer.out.pieces.empty()) {
    std::array<iovec, kPiecesPerCall> vectors;
    msghdr message = {};
    message.msg_iov = vectors.data();
    message.msg_iovlen = peer.out.FillVectors(vectors);
    const ssize_t sent = ::sendmsg(peer.out.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (IsForLater(errno)) return {};
      LMDBIO_TRY_VOID(ReadNews(peer));  // says more than the failure
      return Died(peer);
    }
    peer.out.Advance(static_cast<size_t>(sent));
  }
  return {};
}

Status SocketWire::ReceiveSome(Peer& peer) {
  while (!peer.in.pieces.empty()) {
    std::array<iovec, kPiecesPerCall> vectors;
    const size_t count = peer.in.FillVectors(vectors);
    size_t asked_bytes = 0;
    for (size_t i = 0; i < count; ++i) asked_bytes += vectors[i].iov_len;
    const ssize_t got = ::readv(peer.in.socket.get(), vectors.data(), static_cast<int>(count));
    if (got < 0 && IsForLater(errno)) return {};
    if (got <= 0) {
      LMDBIO_TRY_VOID(ReadNews(peer));
      return Died(peer);
    }
    peer.in.Advance(static_cast<size_t>(got));
    if (static_cast<size_t>(got) < asked_bytes) return {};
  }
  return {};
}

Status SocketWire::ReadNews(Peer& peer) {
  while (!peer.has_left) {
    std::byte* const to = reinterpret_cast<std::byte*>(&peer.news) + peer.news_bytes;
    const ssize_t got =
        ::recv(peer.out.socket.get(), to, sizeof(News) - peer.news_bytes, MSG_DONTWAIT);
    if (got < 0 && IsForLater(errno)) return {};
    if (got <= 0) return Died(peer);
    peer.news_bytes += static_cast<size_t>(got);
    if (peer.news_bytes < sizeof(News)) continue;
    if (peer.news.kind == News::FrameKind::kLeft) {
      peer.has_left = true;
      return {};
    }
    const size_t length = std::min<size_t>(peer.news.length_bytes, peer.news.text.size());
    return Keep(std::string(peer.news.text.data(), length));
  }
  return {};
}

Status SocketWire::Look(Peer& peer, short out_events, short in_events) {
  if (in_events != 0) LMDBIO_TRY_VOID(ReceiveSome(peer));
  if ((out_events & POLLOUT) != 0 || (peer.has_left && out_events != 0)) {
    LMDBIO_TRY_VOID(SendSome(peer));
  }
  if ((out_events & ~POLLOUT) != 0) LMDBIO_TRY_VOID(ReadNews(peer));
  return {};
}

// Sends and receives what can be, or waits until something can be.
Status SocketWire::GoOn(std::chrono::milliseconds limit) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer& peer = peers_[i];
    const bool sends = !peer.out.pieces.empty();
    const bool receives = !peer.in.pieces.empty();
    const bool is_over = peer.has_left && !sends;
    const int events = (peer.has_left ? 0 : POLLIN) | (sends ? POLLOUT : 0);
    polled_[1 + 2 * i] = {is_over ? -1 : peer.out.socket.get(), static_cast<short>(events), 0};
    polled_[2 + 2 * i] = {receives ? peer.in.socket.get() : -1, POLLIN, 0};
  }
  ::poll(polled_.data(), polled_.size(), static_cast<int>(limit.count()));
  LMDBIO_TRY_VOID(CheckStopped());
  for (size_t i = 0; i < peers_.size(); ++i) {
    LMDBIO_TRY_VOID(Look(peers_[i], polled_[1 + 2 * i].revents, polled_[2 + 2 * i].revents));
  }
  return {};
}

Status SocketWire::Await(Lane& lane) {
  LMDBIO_TRY_VOID(CheckStopped());
  LMDBIO_CHECK(lane.done_count > 0 || !lane.pieces.empty());
  const auto spin_end =
      wait_mode_ == WaitMode::kSpin ? Clock::now() + kSpinLimit : Clock::time_point();
  while (lane.done_count == 0) {
    const auto now = Clock::now();
    if (now >= next_health_check_) {
      next_health_check_ = now + ranks::kHealthNap;
      Status health = health_.Check();
      if (!health) return Keep(health.error().message());
    }
    LMDBIO_TRY_VOID(GoOn(now < spin_end ? std::chrono::milliseconds(0) : ranks::kHealthNap));
  }
  --lane.done_count;
  return {};
}

}  // namespace

Result<std::unique_ptr<LinkWire>> OpenLinkWire(ranks::Group& group, ranks::Health& health,
                                               const LinkWireOptions& options) {
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  Status made = stop_event ? Status()
                           : Fail(ErrorCode::kResourceExhausted,
                                  fmt::format("eventfd: {}", std::strerror(errno)), errno);
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(made)));
  LMDBIO_TRY(auto names, ranks::GatherRankNames(group, options.known_as));
  ranks::LinkSpec plan;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    plan.sends_to.push_back(rank);
    plan.receives_from.push_back(rank);
  }
  LMDBIO_TRY(ranks::RendezvousResult met, ranks::MeetPeers(group, plan));
  return std::make_unique<SocketWire>(group.rank(), health, options.wait_mode,
                                      std::move(stop_event), std::move(names), std::move(met));
}

}  // namespace lmdbio::sync
