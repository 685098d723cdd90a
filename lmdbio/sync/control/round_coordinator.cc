#include "lmdbio/sync/control/round_coordinator.h"

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// The reply that the only member of a scope gets.
Reply EchoOf(Exchange exchange) {
  Reply reply;
  if (exchange.kind == ExchangeKind::kIntersect) {
    reply.words = std::move(exchange.words);
  } else if (exchange.kind == ExchangeKind::kGather) {
    reply.gathered.push_back(std::move(exchange.bytes));
  } else {
    reply.bytes = std::move(exchange.bytes);
  }
  return reply;
}

}  // namespace

void RoundCoordinator::Submit(Request request) { pending_.Submit(std::move(request)); }

// The roots and rank 0 drop the requests that they have collected. The ranks that made them take
// them back in the same step, and may submit them again.
std::vector<Request> RoundCoordinator::TakePending() {
  ForgetCollected();
  stalled_.clear();
  return pending_.TakeAll();
}

bool RoundCoordinator::has_pending() const {
  return pending_.has_units() || (wants_end_ && !is_ended_);
}

std::optional<Exchange> RoundCoordinator::BeginRound() {
  ++counters_.round_count;
  pending_.Open();
  auto exchange = SkipAlone(FirstExchange());
  LMDBIO_CHECK(exchange);  // cannot fail, because this rank alone took part
  return std::move(*exchange);
}

Result<std::optional<Exchange>> RoundCoordinator::Continue(Reply reply) {
  LMDBIO_TRY(std::optional<Exchange> exchange, NextExchange(std::move(reply)));
  return SkipAlone(std::move(exchange));
}

std::vector<Response> RoundCoordinator::TakeResponses() { return std::exchange(responses_, {}); }

void RoundCoordinator::MarkStalled(const std::vector<std::string>& names) {
  stalled_.insert(stalled_.end(), names.begin(), names.end());
}

void RoundCoordinator::Deliver(Response response) {
  pending_.Answered(response);
  responses_.push_back(std::move(response));
}

Result<ResponseList> RoundCoordinator::Received(const Reply& reply, int sender) const {
  auto list = DecodeResponses(reply.bytes, layout_.size());
  if (!list) return Fail(std::move(list).error().Within(fmt::format("rank {}", sender)));
  return list;
}

bool RoundCoordinator::IsAlone(const Exchange& exchange) const {
  return layout_.Members(exchange.scope).size() == 1;
}

// A scope has one member if a host has one rank, or no hosts below it in the tree of hosts. The
// loop ends, because a round has at most six exchanges.
Result<std::optional<Exchange>> RoundCoordinator::SkipAlone(std::optional<Exchange> exchange) {
  while (exchange && IsAlone(*exchange)) {
    LMDBIO_TRY(exchange, NextExchange(EchoOf(std::move(*exchange))));
  }
  if (exchange) ++counters_.exchange_count;
  return exchange;
}

}  // namespace lmdbio::sync
