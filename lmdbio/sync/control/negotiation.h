// lmdbio/sync/control/negotiation.h - rank 0: turns lists of requests into a list of responses.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_NEGOTIATION_H_
#define LMDBIO_SYNC_CONTROL_NEGOTIATION_H_

#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/exchange.h"
#include "lmdbio/sync/control/message_table.h"
#include "lmdbio/sync/control/rank_topology.h"
#include "lmdbio/sync/request/message_codec.h"

namespace lmdbio::sync {

// The ranks for which a message may contain requests.
enum class Speaker {
  kItself,    // the sender
  kItsHosts,  // the ranks of its host, and of the hosts below it in the tree of hosts
};

// Decodes the messages of all members of a scope.
// Errors: kInternal  not one message for each member; a malformed message, or one with a request
//                    for a rank that `speaker` does not permit; names the sender
Result<std::vector<RequestList>> DecodeGathered(const Reply& reply, ExchangeScope scope,
                                                const RankTopology& layout, Speaker speaker);

// Threads: one at a time.
class Negotiation {
 public:
  Negotiation(const RankTopology& layout, MergeExtra merge)
      : layout_(layout), table_(layout.size(), std::move(merge)) {}

  // Errors: kInternal  as DecodeGathered and MessageTable::Add
  Result<ResponseList> Answer(const Reply& gathered, ExchangeScope scope, Speaker speaker);

  std::vector<Stall> Stalls() const { return table_.Stalls(); }
  void Clear() { table_.Clear(); }

 private:
  RankTopology layout_;
  MessageTable table_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_NEGOTIATION_H_
