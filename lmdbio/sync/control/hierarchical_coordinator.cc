#include "lmdbio/sync/control/hierarchical_coordinator.h"

#include <string>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

Exchange HierarchicalCoordinator::FirstExchange() {
  step_ = HierarchyStep::kHostGather;
  RequestList list;
  list.is_ending = wants_end();
  list.asks = pending().TakeUnsent(layout().rank());
  list.stalled = TakeStalled();
  return {ExchangeKind::kGather, ExchangeScope::kHost, {}, Encode(list)};
}

// A round has four exchanges; ranks that are not roots take part in the first and the last:
//
//   host gather      requests of the host's ranks to its root, which merges equal ones
//   root gather      merged requests of all roots to rank 0, which answers them
//   root broadcast   the answer to all roots
//   host broadcast   the answer to the ranks of each host
//
// Rank 0 thus decodes one list for each host, and equal requests of a host only once.
Result<std::optional<Exchange>> HierarchicalCoordinator::NextExchange(Reply reply) {
  Exchange next{ExchangeKind::kBroadcast, ExchangeScope::kHost, {}, {}};
  switch (step_) {
    case HierarchyStep::kHostGather:
      if (!layout().is_root()) {
        step_ = HierarchyStep::kHostBroadcast;
        return next;
      }
      step_ = HierarchyStep::kRootGather;
      return AfterHostGather(reply);
    case HierarchyStep::kRootGather:
      step_ = HierarchyStep::kRootBroadcast;
      next.scope = ExchangeScope::kRoots;
      if (layout().rank() == 0) {
        LMDBIO_TRY(answer_, negotiation_.Answer(reply, ExchangeScope::kRoots, Speaker::kItsHost));
        next.bytes = Encode(answer_);
      }
      return next;
    case HierarchyStep::kRootBroadcast:
      step_ = HierarchyStep::kHostBroadcast;
      if (layout().rank() != 0) {
        LMDBIO_TRY(answer_, Received(reply, 0));
      }
      // The host table forgets a forwarded name when its tensor is answered. It forgets the joined
      // ranks when the joins are answered.
      for (const Response& response : answer_.responses) host_table_.Answered(response);
      next.bytes = Encode(answer_);
      return next;
    case HierarchyStep::kHostBroadcast:
      if (!layout().is_root()) {
        LMDBIO_TRY(answer_, Received(reply, layout().Members(ExchangeScope::kHost).front()));
      }
      Deliver(std::exchange(answer_, {}));
      return std::nullopt;
  }
  LMDBIO_CHECK(false);
}

Result<Exchange> HierarchicalCoordinator::AfterHostGather(const Reply& reply) {
  LMDBIO_TRY(std::vector<RequestList> lists,
             DecodeGathered(reply, ExchangeScope::kHost, layout(), Speaker::kItself));
  RequestList merged;
  std::vector<std::string> stalled;
  for (RequestList& list : lists) {
    merged.is_ending = merged.is_ending || list.is_ending;
    for (RequestEntry& ask : list.asks) LMDBIO_TRY_VOID(host_table_.Add(std::move(ask)));
    std::ranges::move(list.stalled, std::back_inserter(stalled));
  }
  // Forward finds a request only if it is in the table, so it follows Add. The names end at the
  // host root: rank 0 learns the missing ranks from the forwarded requests.
  for (const std::string& name : stalled) host_table_.Forward(name);
  merged.asks = host_table_.TakeReady();
  return Exchange{ExchangeKind::kGather, ExchangeScope::kRoots, {}, Encode(merged)};
}

void HierarchicalCoordinator::Deliver(ResponseList answer) {
  if (answer.is_ended) SetEnded();
  counts().negotiated_count += answer.responses.size();
  for (Response& response : answer.responses) RoundCoordinator::Deliver(std::move(response));
}

void HierarchicalCoordinator::ForgetCollected() {
  host_table_.Clear();
  negotiation_.Clear();
}

}  // namespace lmdbio::sync
