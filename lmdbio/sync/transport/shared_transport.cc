#include "lmdbio/sync/transport/shared_transport.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/host_topology.h"

namespace lmdbio::sync {

using sync::Exchange;
using sync::ExchangeKind;
using sync::ExchangeScope;

namespace {

// A tree of roots: wide, so that most of them sleep once for each exchange.
constexpr int kChildrenMax = 4;
// Who has more to send than there is room for on the way tries again after this.
constexpr std::chrono::milliseconds kFlushPause{1};

std::vector<std::byte> BytesOfWords(const std::vector<uint64_t>& words) {
  const Bytes bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
void Append(std::vector<std::byte>& bytes, T value) {
  const Bytes raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

}  // namespace

Result<std::unique_ptr<SharedTransport>> SharedTransport::Create(ranks::Group& group,
                                                                 ranks::Health& health) {
  std::unique_ptr<SharedTransport> transport(new SharedTransport());
  transport->health_ = &health;
  transport->ranks_.rank = group.rank();
  transport->ranks_.size = group.size();
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(ranks::HostTopology places, ranks::FindHostPlaces(group, *host));
  transport->host_index_ = places.host_of[static_cast<size_t>(group.rank())];
  transport->host_ranks_ = places.ranks[static_cast<size_t>(transport->host_index_)];
  transport->ranks_.host_of = std::move(places.host_of);
  LMDBIO_TRY(transport->board_, ranks::ForAll(group, SharedMailboxes::Create(*host)));
  transport->meeting_ = std::make_unique<HostAllGather>(*transport->board_);
  transport->spans_hosts_ = host->size() < group.size();
  LMDBIO_TRY(const auto roots, group.Split(host->rank() == 0 ? 0 : 1));
  if (transport->spans_hosts_ && host->rank() == 0) {
    transport->neighbours_ = ranks::NeighboursInTree(*roots, kChildrenMax);
    ranks::LinkSpec plan;
    plan.sends_to = transport->neighbours_.children;
    if (transport->has_parent()) plan.sends_to.push_back(*transport->neighbours_.parent);
    plan.receives_from = plan.sends_to;
    plan.known_as = group.rank();
    auto links = ranks::PeerLinks::Open(*roots, plan);
    if (links) transport->links_ = std::move(*links);
    LMDBIO_TRY_VOID(Agree(group, links ? Status() : Fail(std::move(links).error())));
  } else {
    LMDBIO_TRY_VOID(Agree(group, {}));
  }
  return transport;
}

// What this rank brings to the meeting of its host.
std::vector<std::byte> SharedTransport::MessageInto() const {
  if (exchange_.kind == ExchangeKind::kIntersect) return BytesOfWords(exchange_.words);
  if (exchange_.kind == ExchangeKind::kGather) return exchange_.bytes;
  return is_root() ? exchange_.bytes : std::vector<std::byte>();
}

Status SharedTransport::Start(Exchange exchange) {
  LMDBIO_CHECK(phase_ == Phase::kOver);
  exchange_ = std::move(exchange);
  reply_ = {};
  words_.clear();
  brought_.clear();
  answer_.clear();
  const bool is_across = spans_hosts_ && exchange_.scope == ExchangeScope::kAll;
  if (exchange_.scope == ExchangeScope::kRoots) {
    LMDBIO_CHECK(is_root());
    words_ = exchange_.words;
    brought_.emplace_back(host_index_, exchange_.bytes);
    return BeginAcrossRoots();
  }
  if (is_across && exchange_.kind == ExchangeKind::kBroadcast) {
    if (is_root()) return BeginAcrossRoots();
    BeginHostOut();
    return {};
  }
  phase_ = Phase::kHostIn;
  meeting_->Begin(MessageInto());
  return {};
}

// words  [as many as are here]
void SharedTransport::IntersectWith(Bytes words) {
  for (size_t at = 0; at < words_.size(); ++at) {
    uint64_t word = 0;
    std::memcpy(&word, &words[at * sizeof word], sizeof word);
    words_[at] &= word;
  }
}

void SharedTransport::TakeHostMessages() {
  for (int i = 0; i < board_->size(); ++i) {
    const Bytes message = meeting_->MessageOf(i);
    if (exchange_.kind == ExchangeKind::kGather) {
      const int number =
          exchange_.scope == ExchangeScope::kHost ? i : host_ranks_[static_cast<size_t>(i)];
      if (is_root()) brought_.emplace_back(number, std::vector(message.begin(), message.end()));
    } else if (exchange_.kind == ExchangeKind::kBroadcast) {
      if (i == 0) answer_.assign(message.begin(), message.end());
    } else {
      LMDBIO_CHECK(message.size() == exchange_.words.size() * sizeof(uint64_t));
      if (i == 0) words_.assign(exchange_.words.size(), ~uint64_t{0});
      IntersectWith(message);
    }
  }
}

Status SharedTransport::BeginAcrossRoots() {
  if (links_ == nullptr) {
    if (exchange_.kind == ExchangeKind::kBroadcast) answer_ = exchange_.bytes;
    Finish();
    return {};
  }
  if (exchange_.kind == ExchangeKind::kBroadcast) {
    answer_ = exchange_.bytes;
    phase_ = Phase::kRootsDown;
    return {};
  }
  awaited_children_ = neighbours_.children;
  phase_ = Phase::kRootsUp;
  return {};
}

// What another root brings, into what is here.
Status SharedTransport::Merge(Bytes message) {
  const auto damaged = [] {
    return Fail(ErrorCode::kInternal, "another host's root sent a message of the wrong size");
  };
  if (exchange_.kind == ExchangeKind::kIntersect) {
    if (message.size() != words_.size() * sizeof(uint64_t)) return damaged();
    IntersectWith(message);
    return {};
  }
  while (!message.empty()) {
    int32_t number = 0;
    uint64_t bytes = 0;
    if (message.size() < sizeof number + sizeof bytes) return damaged();
    std::memcpy(&number, message.data(), sizeof number);
    std::memcpy(&bytes, &message[sizeof number], sizeof bytes);
    message = message.subspan(sizeof number + sizeof bytes);
    if (bytes > message.size()) return damaged();
    brought_.emplace_back(
        number, std::vector(message.begin(), message.begin() + static_cast<ptrdiff_t>(bytes)));
    message = message.subspan(bytes);
  }
  return {};
}

std::vector<std::byte> SharedTransport::PackBrought() const {
  if (exchange_.kind == ExchangeKind::kIntersect) return BytesOfWords(words_);
  std::vector<std::byte> packed;
  for (const auto& [number, bytes] : brought_) {
    Append(packed, static_cast<int32_t>(number));
    Append(packed, uint64_t{bytes.size()});
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  return packed;
}

Result<bool> SharedTransport::AdvanceUp() {
  while (!awaited_children_.empty()) {
    const auto ready = std::find_if(awaited_children_.begin(), awaited_children_.end(),
                                    [&](int child) { return links_->HasMessage(child); });
    if (ready == awaited_children_.end()) return false;
    LMDBIO_TRY(const auto message, links_->Receive(*ready));
    if (message) LMDBIO_TRY_VOID(Merge(*message));
    awaited_children_.erase(ready);
  }
  if (has_parent()) LMDBIO_TRY_VOID(links_->Post(*neighbours_.parent, PackBrought()));
  if (exchange_.kind == ExchangeKind::kGather) {  // nothing comes down
    Finish();
    return true;
  }
  answer_ = BytesOfWords(words_);
  phase_ = Phase::kRootsDown;
  return true;
}

Status SharedTransport::PassDown() {
  for (const int child : neighbours_.children) LMDBIO_TRY_VOID(links_->Post(child, answer_));
  return {};
}

Result<bool> SharedTransport::AdvanceDown() {
  if (has_parent()) {
    if (!links_->HasMessage(*neighbours_.parent)) return false;
    LMDBIO_TRY(auto message, links_->Receive(*neighbours_.parent));
    if (message) answer_ = std::move(*message);
  }
  LMDBIO_TRY_VOID(PassDown());
  if (exchange_.scope == ExchangeScope::kAll) {
    BeginHostOut();
  } else {
    Finish();
  }
  return true;
}

void SharedTransport::BeginHostOut() {
  phase_ = Phase::kHostOut;
  meeting_->Begin(is_root() ? answer_ : std::vector<std::byte>());
}

void SharedTransport::Finish() {
  phase_ = Phase::kOver;
  if (exchange_.kind == ExchangeKind::kIntersect) {
    if (!answer_.empty()) {
      LMDBIO_CHECK(answer_.size() == exchange_.words.size() * sizeof(uint64_t));
      words_.resize(exchange_.words.size());
      std::memcpy(words_.data(), answer_.data(), answer_.size());
    }
    reply_.words = std::move(words_);
  } else if (exchange_.kind == ExchangeKind::kBroadcast) {
    reply_.bytes = std::move(answer_);
  } else {
    std::sort(brought_.begin(), brought_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [number, bytes] : brought_) reply_.gathered.push_back(std::move(bytes));
  }
}

// Whether there was anything to do.
Result<bool> SharedTransport::Step() {
  switch (phase_) {
    case Phase::kOver:
      return false;
    case Phase::kHostIn:
      if (!meeting_->Advance()) return false;
      TakeHostMessages();
      if (!spans_hosts_ || exchange_.scope == ExchangeScope::kHost) {
        Finish();
      } else if (is_root()) {
        LMDBIO_TRY_VOID(BeginAcrossRoots());
      } else if (exchange_.kind == ExchangeKind::kGather) {
        Finish();
      } else {
        BeginHostOut();
      }
      return true;
    case Phase::kRootsUp:
      return AdvanceUp();
    case Phase::kRootsDown:
      return AdvanceDown();
    case Phase::kHostOut:
      if (!meeting_->Advance()) return false;
      answer_.assign(meeting_->MessageOf(0).begin(), meeting_->MessageOf(0).end());
      Finish();
      return true;
  }
  LMDBIO_CHECK(false);
}

Result<bool> SharedTransport::Test() {
  for (bool goes_on = true; goes_on;) {
    LMDBIO_TRY(goes_on, Step());
  }
  return phase_ == Phase::kOver && is_flushed();
}

// Whether all has been sent. Who sleeps until a root takes what it is sent would not hear that it
// has stopped.
bool SharedTransport::is_flushed() { return links_ == nullptr || links_->Flush(); }

Result<bool> SharedTransport::Wait(std::chrono::microseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (true) {
    LMDBIO_TRY(const bool is_over, Test());
    if (is_over) return true;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto nap =
        std::min<std::chrono::milliseconds>(left, is_flushed() ? ranks::kHealthNap : kFlushPause);
    bool has_news = false;
    if (phase_ == Phase::kHostIn || phase_ == Phase::kHostOut) {
      has_news = board_->Await(nap);
    } else if (phase_ == Phase::kRootsUp) {
      has_news = links_->AwaitAny(awaited_children_, nap).has_value();
    } else if (phase_ == Phase::kRootsDown) {
      has_news = links_->AwaitAny(std::span(&*neighbours_.parent, 1), nap).has_value();
    } else {
      std::this_thread::sleep_for(nap);
    }
    if (!has_news) LMDBIO_TRY_VOID(health_->Check());
  }
}

void SharedTransport::Sleep(std::chrono::microseconds limit, WakeOn wake_on) {
  board_->Sleep(limit, wake_on == WakeOn::kOrPeerCame ? SharedMailboxes::Listens::kToArrivals
                                                      : SharedMailboxes::Listens::kToBell);
}

}  // namespace lmdbio::sync
