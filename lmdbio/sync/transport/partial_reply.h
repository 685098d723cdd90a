// lmdbio/sync/transport/partial_reply.h - the reply to an exchange, as far as contributions of
// ranks have arrived.
//
// A rank adds its own contribution and those of others, in any order. It packs the sum of them for
// the next rank on the way to rank 0. The answer that comes back completes the reply.
#ifndef LMDBIO_SYNC_TRANSPORT_PARTIAL_REPLY_H_
#define LMDBIO_SYNC_TRANSPORT_PARTIAL_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/control/exchange.h"

namespace lmdbio::sync {

// Pure: no thread, no clock, no message.
// Threads: one at a time.
class PartialReply {
 public:
  // Of an exchange that nobody has contributed to.
  // word_count  of kIntersect; the same on every rank
  PartialReply(ExchangeKind kind, size_t word_count);

  // Adds the contribution of one rank: words with kIntersect, a message with kGather.
  // number  orders the messages of kGather; unused with kIntersect
  // Errors: kInternal  the words are not as many as on this rank
  Status Add(int number, Bytes contribution);
  // Adds everything that another rank has packed.
  // Errors: kInternal  malformed bytes
  Status Merge(Bytes packed);
  // All contributions so far. With kBroadcast and kIntersect also the answer, once it is complete.
  std::vector<std::byte> Pack() const;

  // With kBroadcast the message of the first rank, with kIntersect the words of all ranks.
  // Errors: kInternal  the words are not as many as on this rank
  Status SetAnswer(Bytes answer);

  // The reply. The messages of kGather are in the order of their numbers.
  Reply TakeReply();

 private:
  ExchangeKind kind_;
  std::vector<uint64_t> words_;                                   // kIntersect
  std::vector<std::pair<int, std::vector<std::byte>>> messages_;  // kGather: number, bytes
  std::vector<std::byte> bytes_;                                  // kBroadcast
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_PARTIAL_REPLY_H_
