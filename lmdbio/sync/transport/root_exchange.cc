#include "lmdbio/sync/transport/root_exchange.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

Result<std::unique_ptr<RootExchange>> RootExchange::Open(ranks::Group& roots, int known_as,
                                                         int children_max) {
  std::unique_ptr<RootExchange> exchange(new RootExchange());
  exchange->neighbours_ = ranks::NeighboursInTree(roots, children_max);
  ranks::LinkSpec spec;
  spec.sends_to = exchange->neighbours_.children;
  if (exchange->neighbours_.parent) spec.sends_to.push_back(*exchange->neighbours_.parent);
  // Each edge of the tree has a link in both directions.
  spec.receives_from = spec.sends_to;
  spec.known_as = known_as;
  LMDBIO_TRY(exchange->links_, ranks::PeerLinks::Open(roots, spec));
  return exchange;
}

// The children that take part in the exchange in progress.
std::span<const int> RootExchange::lower() const {
  if (scope_ == RootScope::kParent) return {};
  return neighbours_.children;
}

void RootExchange::Begin(ExchangeKind kind, RootScope scope, PartialReply& reply) {
  LMDBIO_CHECK(direction_ == ExchangeDirection::kNone);
  LMDBIO_CHECK(scope != RootScope::kParent || neighbours_.parent);
  kind_ = kind;
  scope_ = scope;
  reply_ = &reply;
  direction_ = kind == ExchangeKind::kBroadcast ? ExchangeDirection::kDown : ExchangeDirection::kUp;
  awaited_children_.assign(lower().begin(), lower().end());
}

Result<bool> RootExchange::Advance() {
  if (direction_ == ExchangeDirection::kUp) {
    LMDBIO_TRY(const bool is_up, AdvanceUp());
    if (!is_up) return false;
    direction_ =
        kind_ == ExchangeKind::kGather ? ExchangeDirection::kNone : ExchangeDirection::kDown;
  }
  if (direction_ == ExchangeDirection::kDown) {
    LMDBIO_TRY(const bool is_down, AdvanceDown());
    if (!is_down) return false;
    direction_ = ExchangeDirection::kNone;
  }
  return true;
}

void RootExchange::Abandon(const Error& why) {
  for (const int child : neighbours_.children) links_->PostFailure(child, why);
  if (neighbours_.parent) links_->PostFailure(*neighbours_.parent, why);
}

// A root that has failed leaves its neighbours the reason before it closes its links. The reason
// may be another rank, and all ranks must name the same one.
Status RootExchange::Post(int to, const std::vector<std::byte>& message) {
  Status posted = links_->Post(to, message);
  while (!posted && links_->HasMessage(to)) {
    const auto received = links_->Receive(to);
    if (!received) return Fail(received.error().Copy());
  }
  return posted;
}

// Merges the messages of children in the order of their arrival. Then sends the result up. Post
// keeps the bytes for which there is no room, so no root sleeps in a send.
Result<bool> RootExchange::AdvanceUp() {
  while (!awaited_children_.empty()) {
    const auto ready = std::ranges::find_if(awaited_children_,
                                            [&](int child) { return links_->HasMessage(child); });
    if (ready == awaited_children_.end()) return false;
    LMDBIO_TRY(const auto message, links_->Receive(*ready));
    if (message) LMDBIO_TRY_VOID(reply_->Merge(*message));
    awaited_children_.erase(ready);
  }
  if (has_upper()) LMDBIO_TRY_VOID(Post(*neighbours_.parent, reply_->Pack()));
  return true;
}

// The first root of the scope has no parent in it: its merged reply is the answer.
Result<bool> RootExchange::AdvanceDown() {
  if (has_upper()) {
    if (!links_->HasMessage(*neighbours_.parent)) return false;
    LMDBIO_TRY(const auto message, links_->Receive(*neighbours_.parent));
    if (message) LMDBIO_TRY_VOID(reply_->SetAnswer(*message));
  }
  const std::vector<std::byte> answer = reply_->Pack();
  for (const int child : lower()) LMDBIO_TRY_VOID(Post(child, answer));
  return true;
}

// Up, a root waits for children, and down for its parent. The first root of the scope waits only on
// the way up.
bool RootExchange::Await(std::chrono::milliseconds limit) {
  LMDBIO_CHECK(direction_ != ExchangeDirection::kNone);
  if (direction_ == ExchangeDirection::kUp)
    return links_->AwaitAny(awaited_children_, limit).has_value();
  return links_->AwaitAny(std::span(&*neighbours_.parent, 1), limit).has_value();
}

}  // namespace lmdbio::sync
