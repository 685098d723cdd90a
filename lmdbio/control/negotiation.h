// lmdbio/control/negotiation.h - lists of requests in, a list of responses out: what rank 0 does.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_CONTROL_NEGOTIATION_H_
#define LMDBIO_CONTROL_NEGOTIATION_H_

#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/control/codec.h"
#include "lmdbio/control/exchange.h"
#include "lmdbio/control/message_table.h"
#include "lmdbio/control/rank_layout.h"

namespace lmdbio::control {

// For whom a message may ask.
enum class Speaker { kItself, kItsHost };

// The messages of all members of a scope.
// Errors: kInternal  not one message for each of them; one that cannot be read, or asks for a rank
//                    for which it may not; names the sender
Result<std::vector<AskList>> DecodeGathered(const Reply& reply, ExchangeScope scope,
                                            const RankLayout& layout, Speaker speaker);

// Threads: one at a time.
class Negotiation {
 public:
  Negotiation(const RankLayout& layout, MergeExtra merge)
      : layout_(layout), table_(layout.size(), std::move(merge)) {}

  // Errors: kInternal  as DecodeGathered and MessageTable::Add
  Result<ResponseList> Answer(const Reply& gathered, ExchangeScope scope, Speaker speaker);

  std::vector<Stall> Stalls() const { return table_.Stalls(); }
  void Clear() { table_.Clear(); }

 private:
  RankLayout layout_;
  MessageTable table_;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_NEGOTIATION_H_
