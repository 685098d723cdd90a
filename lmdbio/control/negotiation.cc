#include "lmdbio/control/negotiation.h"

#include <utility>

#include <fmt/format.h>

namespace lmdbio::control {

Result<std::vector<AskList>> DecodeGathered(const Reply& reply, ExchangeScope scope,
                                            const RankLayout& layout, Speaker speaker) {
  const std::vector<int>& senders = layout.Members(scope);
  if (reply.gathered.size() != senders.size()) {
    return Fail(ErrorCode::kInternal, fmt::format("{} messages were gathered from {} ranks",
                                                  reply.gathered.size(), senders.size()));
  }
  std::vector<AskList> lists;
  lists.reserve(senders.size());
  for (size_t i = 0; i < senders.size(); ++i) {
    const int sender = senders[i];
    auto list = DecodeAsks(reply.gathered[i], layout.size());
    if (!list) return Fail(std::move(list).error().Within(fmt::format("rank {}", sender)));
    for (const Ask& ask : list->asks) {
      for (const int32_t rank : ask.ranks) {
        const bool may_speak = speaker == Speaker::kItself
                                   ? rank == sender
                                   : layout.HostOf(rank) == layout.HostOf(sender);
        if (may_speak) continue;
        return Fail(ErrorCode::kInternal, fmt::format("rank {} asks for tensor '{}' for rank {}",
                                                      sender, ask.request.name, rank));
      }
    }
    lists.push_back(std::move(*list));
  }
  return lists;
}

Result<ResponseList> Negotiation::Answer(const Reply& gathered, ExchangeScope scope,
                                         Speaker speaker) {
  LMDBIO_TRY(std::vector<AskList> lists, DecodeGathered(gathered, scope, layout_, speaker));
  ResponseList answer;
  for (AskList& list : lists) {
    answer.is_ended = answer.is_ended || list.is_ending;
    for (Ask& ask : list.asks) LMDBIO_TRY_VOID(table_.Add(std::move(ask)));
  }
  answer.responses = table_.TakeReady();
  return answer;
}

}  // namespace lmdbio::control
