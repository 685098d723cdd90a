#include "lmdbio/sync/transport/shared_transport.h"

#include <algorithm>
#include <span>
#include <thread>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/host_topology.h"

namespace lmdbio::sync {
namespace {

// A root with more bytes to send than the way has room for tries again after this pause.
constexpr std::chrono::milliseconds kFlushPause{1};

// The children of a root, if the job has no tree of hosts. Such links are wide, so that most roots
// sleep once in an exchange: a root sleeps once for its parent and once for its children, and most
// roots have no children.
constexpr int kUsualChildrenMax = 4;

}  // namespace

Result<std::unique_ptr<SharedTransport>> SharedTransport::Create(ranks::Group& group,
                                                                 ranks::Health& health,
                                                                 uint32_t tree_arity) {
  std::unique_ptr<SharedTransport> transport(new SharedTransport());
  transport->health_ = &health;
  transport->ranks_.rank = group.rank();
  transport->ranks_.size = group.size();
  transport->ranks_.tree_arity = LimitedArity(tree_arity, group.size());
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(ranks::HostTopology places, ranks::FindHostPlaces(group, *host));
  transport->host_index_ = places.host_of[static_cast<size_t>(group.rank())];
  transport->host_ranks_ = places.ranks[static_cast<size_t>(transport->host_index_)];
  transport->ranks_.host_of = std::move(places.host_of);
  LMDBIO_TRY(transport->board_, ranks::ForAll(group, SharedMailboxes::Create(*host)));
  transport->meeting_ = std::make_unique<HostAllGather>(*transport->board_);
  transport->spans_hosts_ = host->size() < group.size();
  // All ranks split, also those that are no roots: the call is collective.
  LMDBIO_TRY(const auto roots, group.Split(host->rank() == 0 ? 0 : 1));
  Status opened;
  if (transport->spans_hosts_ && host->rank() == 0) {
    const int arity = transport->ranks_.tree_arity;
    auto exchange =
        RootExchange::Open(*roots, group.rank(), arity == 0 ? kUsualChildrenMax : arity);
    if (exchange) {
      transport->roots_ = std::move(*exchange);
    } else {
      opened = Fail(std::move(exchange).error());
    }
  }
  LMDBIO_TRY_VOID(Agree(group, std::move(opened)));
  return transport;
}

// With kBroadcast only the first rank of the scope has anything to contribute.
std::vector<std::byte> SharedTransport::OwnContribution() const {
  if (exchange_.kind == ExchangeKind::kIntersect) {
    const Bytes words = std::as_bytes(std::span(exchange_.words));
    return {words.begin(), words.end()};
  }
  const bool contributes = exchange_.kind == ExchangeKind::kGather || is_root();
  return contributes ? exchange_.bytes : std::vector<std::byte>();
}

Status SharedTransport::Start(Exchange exchange) {
  LMDBIO_CHECK(phase_ == Phase::kOver);
  exchange_ = std::move(exchange);
  partial_ = PartialReply(exchange_.kind, exchange_.words.size());
  const bool is_broadcast = exchange_.kind == ExchangeKind::kBroadcast;
  if (is_among_roots()) {
    LMDBIO_CHECK(is_root());
    const std::vector<std::byte> own = OwnContribution();
    LMDBIO_TRY_VOID(is_broadcast ? partial_.SetAnswer(own) : partial_.Add(host_index_, own));
    BeginAcrossRoots();
    return {};
  }
  if (spans_hosts_ && exchange_.scope == ExchangeScope::kAll && is_broadcast) {
    // Rank 0 has the message, so no host has anything to gather.
    if (!is_root()) {
      BeginHostOut();
      return {};
    }
    LMDBIO_TRY_VOID(partial_.SetAnswer(exchange_.bytes));
    BeginAcrossRoots();
    return {};
  }
  phase_ = Phase::kHostIn;
  meeting_->Begin(OwnContribution());
  return {};
}

// Messages of kGather are numbered by rank: in the host, or in the job.
Status SharedTransport::TakeHostMessages() {
  if (exchange_.kind == ExchangeKind::kBroadcast) return partial_.SetAnswer(meeting_->MessageOf(0));
  // Only the root of the host needs the messages.
  if (exchange_.kind == ExchangeKind::kGather && !is_root()) return {};
  const bool is_host_only = exchange_.scope == ExchangeScope::kHost;
  for (int i = 0; i < board_->size(); ++i) {
    const int number = is_host_only ? i : host_ranks_[static_cast<size_t>(i)];
    LMDBIO_TRY_VOID(partial_.Add(number, meeting_->MessageOf(i)));
  }
  return {};
}

bool SharedTransport::is_among_roots() const {
  return exchange_.scope == ExchangeScope::kChildren || exchange_.scope == ExchangeScope::kParent;
}

void SharedTransport::BeginAcrossRoots() {
  if (roots_ == nullptr) {  // one host: the only root has everything
    phase_ = Phase::kOver;
    return;
  }
  phase_ = Phase::kRoots;
  // Without a tree of hosts all roots are children of rank 0. Their messages pass the links of
  // other roots on the way.
  RootScope scope = RootScope::kAll;
  if (is_among_roots() && ranks_.tree_arity > 0) {
    scope = exchange_.scope == ExchangeScope::kChildren ? RootScope::kChildren : RootScope::kParent;
  }
  roots_->Begin(exchange_.kind, scope, partial_);
}

void SharedTransport::BeginHostOut() {
  phase_ = Phase::kHostOut;
  meeting_->Begin(is_root() ? partial_.Pack() : std::vector<std::byte>());
}

// Advances the exchange by one phase, if that needs no waiting. Returns whether it did. With
// several hosts the phases are:
//
//   kind        scope    a root                    another rank
//   intersect   all      kHostIn kRoots kHostOut   kHostIn kHostOut
//   gather      all      kHostIn kRoots            kHostIn
//   broadcast   all      kRoots kHostOut           kHostOut
//   any         host     kHostIn                   kHostIn
//   any         tree     kRoots                    -
//
// On one host an exchange of all ranks has the phase kHostIn alone.
Result<bool> SharedTransport::Step() {
  const bool has_answer = exchange_.kind != ExchangeKind::kGather;  // for all ranks
  switch (phase_) {
    case Phase::kOver:
      return false;
    case Phase::kHostIn:
      if (!meeting_->Advance()) return false;
      LMDBIO_TRY_VOID(TakeHostMessages());
      phase_ = Phase::kOver;
      if (spans_hosts_ && exchange_.scope != ExchangeScope::kHost) {
        if (is_root()) {
          BeginAcrossRoots();
        } else if (has_answer) {
          BeginHostOut();
        }
      }
      return true;
    case Phase::kRoots: {
      LMDBIO_TRY(const bool is_over, roots_->Advance());
      if (!is_over) return false;
      phase_ = Phase::kOver;
      if (has_answer && exchange_.scope == ExchangeScope::kAll) BeginHostOut();
      return true;
    }
    case Phase::kHostOut:
      if (!meeting_->Advance()) return false;
      LMDBIO_TRY_VOID(partial_.SetAnswer(meeting_->MessageOf(0)));
      phase_ = Phase::kOver;
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

// An exchange is over only when its messages have left. A root that sleeps with unsent bytes would
// not learn that its peer, which waits for them, has failed.
bool SharedTransport::is_flushed() { return roots_ == nullptr || roots_->Flush(); }

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
    } else if (phase_ == Phase::kRoots) {
      has_news = roots_->Await(nap);
    } else {
      std::this_thread::sleep_for(nap);
    }
    // News show that the peers live. Without them this rank looks at the health every 100 ms at
    // least.
    if (!has_news) LMDBIO_TRY_VOID(health_->Check());
  }
}

void SharedTransport::Abandon(const Error& why) {
  board_->Abandon();
  if (roots_ != nullptr) roots_->Abandon(why);
}

void SharedTransport::Sleep(std::chrono::microseconds limit, WakeOn wake_on) {
  board_->Sleep(limit, wake_on == WakeOn::kOrPeerCame ? SharedMailboxes::WakeCause::kWakeUpOrArrival
                                                      : SharedMailboxes::WakeCause::kWakeUpOnly);
}

}  // namespace lmdbio::sync
