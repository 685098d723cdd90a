#include "lmdbio/sync/control/hierarchical_coordinator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// The ranks whose requests a root holds back until they are complete. Rank 0 speaks for its host
// only, like the roots below it. It passes the requests of the other hosts to the negotiation at
// once, because the negotiation must know the incomplete tensors of all hosts.
std::vector<int> OwnRanks(const RankTopology& layout) {
  if (layout.rank() == 0) return layout.Members(ExchangeScope::kHost);
  std::vector<int> own;
  for (const int rank : layout.Members(ExchangeScope::kAll)) {
    if (layout.IsBelow(rank, layout.rank())) own.push_back(rank);
  }
  return own;
}

Exchange GatherIn(ExchangeScope scope, std::vector<std::byte> bytes) {
  return {ExchangeKind::kGather, scope, {}, std::move(bytes)};
}
Exchange BroadcastIn(ExchangeScope scope, std::vector<std::byte> bytes) {
  return {ExchangeKind::kBroadcast, scope, {}, std::move(bytes)};
}

}  // namespace

HierarchicalCoordinator::HierarchicalCoordinator(const RankTopology& layout, MergeExtra merge)
    : RoundCoordinator(layout),
      host_table_(layout.size(), OwnRanks(layout)),
      negotiation_(layout, std::move(merge)) {}

Exchange HierarchicalCoordinator::FirstExchange() {
  step_ = HierarchyStep::kHostGather;
  RequestList list;
  list.is_ending = wants_end();
  list.asks = pending().TakeUnsent(layout().rank());
  list.stalled = TakeStalled();
  return GatherIn(ExchangeScope::kHost, Encode(list));
}

// A round has six exchanges. Ranks that are not roots take part in the first and the last. Rank 0
// has no parent, and a root without children skips the exchanges with them:
//
//   host gather          requests of the host's ranks to its root
//   children gather      merged requests of the child hosts; rank 0 answers them
//   parent gather        this root's merged requests to the root of the parent host
//   parent broadcast     the answer, from there
//   children broadcast   the answer to the roots of the child hosts
//   host broadcast       the answer to the ranks of the host
//
// The gather from children is the parent gather of these children. So a root waits for its children
// first, and the requests of all ranks pass the whole tree in one round.
Result<std::optional<Exchange>> HierarchicalCoordinator::NextExchange(Reply reply) {
  switch (step_) {
    case HierarchyStep::kHostGather:
      if (!layout().is_root()) {
        step_ = HierarchyStep::kHostBroadcast;
        return BroadcastIn(ExchangeScope::kHost, {});
      }
      step_ = HierarchyStep::kChildrenGather;
      return AfterHostGather(reply);
    case HierarchyStep::kChildrenGather:
      return AfterChildrenGather(reply);
    case HierarchyStep::kParentGather:
      step_ = HierarchyStep::kParentBroadcast;
      return BroadcastIn(ExchangeScope::kParent, {});
    case HierarchyStep::kParentBroadcast: {
      step_ = HierarchyStep::kChildrenBroadcast;
      LMDBIO_TRY(answer_, Received(reply, layout().Members(ExchangeScope::kParent).front()));
      return BroadcastIn(ExchangeScope::kChildren, std::move(reply.bytes));
    }
    case HierarchyStep::kChildrenBroadcast:
      step_ = HierarchyStep::kHostBroadcast;
      // The host table forgets a forwarded name when its tensor is answered. It forgets the joined
      // ranks when the joins are answered.
      for (const Response& response : answer_.responses) host_table_.Answered(response);
      return BroadcastIn(ExchangeScope::kHost, std::move(reply.bytes));
    case HierarchyStep::kHostBroadcast:
      if (!layout().is_root()) {
        LMDBIO_TRY(answer_, Received(reply, layout().Members(ExchangeScope::kHost).front()));
      }
      Deliver(std::exchange(answer_, {}));
      return std::nullopt;
  }
  LMDBIO_CHECK(false);
}

Status HierarchicalCoordinator::Collect(const Reply& reply, ExchangeScope scope, Speaker speaker) {
  LMDBIO_TRY(std::vector<RequestList> lists, DecodeGathered(reply, scope, layout(), speaker));
  for (RequestList& list : lists) {
    collected_.is_ending = collected_.is_ending || list.is_ending;
    for (RequestEntry& ask : list.asks) LMDBIO_TRY_VOID(host_table_.Add(std::move(ask)));
    std::ranges::move(list.stalled, std::back_inserter(collected_.stalled));
  }
  return {};
}

// Forward finds a request only if it is in the table, so it follows Add. A name goes up also if
// this table does not have the request: a root further up may hold it back. Ranks name a stalled
// tensor together, so equal names go up once. Rank 0 holds nothing back and has no use for names.
std::vector<std::byte> HierarchicalCoordinator::TakeCollected() {
  std::vector<std::string>& names = collected_.stalled;
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) host_table_.Forward(name);
  collected_.asks = host_table_.TakeReady();
  return Encode(std::exchange(collected_, {}));
}

// The requests of a root other than rank 0 wait in its table for those of its children. So it adds
// nothing to the gather that it receives itself.
Result<Exchange> HierarchicalCoordinator::AfterHostGather(const Reply& reply) {
  LMDBIO_TRY_VOID(Collect(reply, ExchangeScope::kHost, Speaker::kItself));
  if (layout().rank() == 0) return GatherIn(ExchangeScope::kChildren, TakeCollected());
  return GatherIn(ExchangeScope::kChildren, Encode(RequestList{}));
}

Result<Exchange> HierarchicalCoordinator::AfterChildrenGather(const Reply& reply) {
  if (layout().rank() == 0) {
    step_ = HierarchyStep::kChildrenBroadcast;
    LMDBIO_TRY(answer_, negotiation_.Answer(reply, ExchangeScope::kChildren, Speaker::kItsHosts));
    return BroadcastIn(ExchangeScope::kChildren, Encode(answer_));
  }
  step_ = HierarchyStep::kParentGather;
  LMDBIO_TRY_VOID(Collect(reply, ExchangeScope::kChildren, Speaker::kItsHosts));
  return GatherIn(ExchangeScope::kParent, TakeCollected());
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
