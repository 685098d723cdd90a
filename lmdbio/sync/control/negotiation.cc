#include "lmdbio/sync/control/negotiation.h"

#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

// Message i is from the i-th member of the scope. A sender may make requests for itself only, or as
// a host root for the ranks of its host and of the hosts below it. A request in the name of another
// rank could complete a tensor that the other rank has not submitted, and all ranks would reduce
// too early.
Result<std::vector<RequestList>> DecodeGathered(const Reply& reply, ExchangeScope scope,
                                                const RankTopology& layout, Speaker speaker) {
  const std::vector<int>& senders = layout.Members(scope);
  if (reply.gathered.size() != senders.size()) {
    return Fail(ErrorCode::kInternal, fmt::format("{} messages were gathered from {} ranks",
                                                  reply.gathered.size(), senders.size()));
  }
  std::vector<RequestList> lists;
  lists.reserve(senders.size());
  for (size_t i = 0; i < senders.size(); ++i) {
    const int sender = senders[i];
    auto list = DecodeAsks(reply.gathered[i], layout.size());
    if (!list) return Fail(std::move(list).error().Within(fmt::format("rank {}", sender)));
    for (const RequestEntry& ask : list->asks) {
      for (const int32_t rank : ask.ranks) {
        const bool may_speak =
            speaker == Speaker::kItself ? rank == sender : layout.IsBelow(rank, sender);
        if (may_speak) continue;
        return Fail(ErrorCode::kInternal, fmt::format("rank {} requests tensor '{}' for rank {}",
                                                      sender, ask.request.name, rank));
      }
    }
    lists.push_back(std::move(*list));
  }
  return lists;
}

// Adds the requests of all ranks before it takes the complete tensors. The lists are in the order
// of the ranks, so the order of the responses depends on the messages alone. If one rank wants to
// end, all ranks end after this round.
Result<ResponseList> Negotiation::Answer(const Reply& gathered, ExchangeScope scope,
                                         Speaker speaker) {
  LMDBIO_TRY(std::vector<RequestList> lists, DecodeGathered(gathered, scope, layout_, speaker));
  ResponseList answer;
  for (RequestList& list : lists) {
    answer.is_ended = answer.is_ended || list.is_ending;
    for (RequestEntry& ask : list.asks) LMDBIO_TRY_VOID(table_.Add(std::move(ask)));
  }
  answer.responses = table_.TakeReady();
  return answer;
}

}  // namespace lmdbio::sync
