#include "lmdbio/sync/control/horovod_coordinator.h"

#include <utility>

namespace lmdbio::sync {

Exchange HorovodCoordinator::FirstExchange() {
  has_gathered_ = false;
  TakeStalled();  // nothing to do: rank 0 knows all unanswered requests of all ranks
  RequestList list;
  list.is_ending = wants_end();
  list.asks = pending().TakeUnsent(layout().rank());
  return {ExchangeKind::kGather, ExchangeScope::kAll, {}, Encode(list)};
}

// A round has two exchanges, also if no rank has a request: the lists of all ranks to rank 0, and
// its answer to all ranks. A request is sent once; rank 0 keeps it until the last rank has sent its
// own.
Result<std::optional<Exchange>> HorovodCoordinator::NextExchange(Reply reply) {
  const bool is_first = layout().rank() == 0;
  if (!has_gathered_) {
    has_gathered_ = true;
    Exchange broadcast{ExchangeKind::kBroadcast, ExchangeScope::kAll, {}, {}};
    if (is_first) {
      LMDBIO_TRY(answer_, negotiation_.Answer(reply, ExchangeScope::kAll, Speaker::kItself));
      broadcast.bytes = Encode(answer_);
    }
    return broadcast;
  }
  if (!is_first) {
    LMDBIO_TRY(answer_, Received(reply, 0));
  }
  ResponseList answer = std::exchange(answer_, {});
  if (answer.is_ended) SetEnded();
  counts().negotiated_count += answer.responses.size();
  for (Response& response : answer.responses) Deliver(std::move(response));
  return std::nullopt;
}

}  // namespace lmdbio::sync
