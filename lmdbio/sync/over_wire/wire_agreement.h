// lmdbio/sync/over_wire/wire_agreement.h - the ranks check that all of them make the same call.
//
// Recursive doubling over headers: after log2 P steps every rank knows whether any rank declined or
// made another call. The messages of the agreement are the same for all calls, so no rank waits for
// a message that never comes. A small AllReduce sends its values along with the headers, and is
// complete after the agreement.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH (recursive doubling, and how other numbers of ranks than powers of two fold).
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_AGREEMENT_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// The numbers travel between ranks and are append-only.
enum class WireCall : uint8_t {
  kAllReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kAllToAll = 5,
  kBarrier = 6,
  kReduceToParts = 7,
  kGatherParts = 8,
};

// The arguments of a call. Ranks with different shapes make different calls.
struct CallShape {
  WireCall kind = WireCall::kBarrier;
  uint8_t type = 0;
  uint8_t op = 0;
  uint8_t reserved = 0;
  int32_t root = 0;
  uint64_t bytes = 0;
  uint64_t details_digest = 0;  // of the scale, and of the sizes of the parts if there are any

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

// A digest of a list of sizes. Different lists have different digests, except with negligible
// probability.
uint64_t DigestOf(std::span<const uint64_t> parts);

// Maps P ranks to W workers, for algorithms that need a power of two. W is the largest power of two
// that is at most P. The first 2 (P - W) ranks form pairs: the even rank of a pair gives its values
// to the odd rank, which is a worker, and gets the result back. All other ranks are workers.
class Folding {
 public:
  Folding(int rank, int size);

  bool is_worker() const { return worker_ >= 0; }
  int worker() const { return worker_; }    // this rank among the workers, or -1
  int partner() const { return partner_; }  // the other rank of the pair, or -1
  int worker_count() const { return worker_count_; }
  int RankOf(int worker) const {
    return worker < pair_count_ ? 2 * worker + 1 : worker + pair_count_;
  }

 private:
  int worker_count_ = 1;
  int pair_count_ = 0;
  int partner_ = -1;
  int worker_ = -1;
};

class WireAgreement {
 public:
  explicit WireAgreement(Wire& wire) : wire_(wire), folding_(wire.rank(), wire.size()) {}

  // Collective. kDone if no rank declined and all ranks make the same call.
  // Errors: as Wire
  Result<CallOutcome> Agree(const CallTag& tag, const CallShape& shape);

  // Collective. The same, and reduces `values` over all ranks; they stay unchanged on kDeclined.
  // The last exchange scales the result. A single rank has no exchange, so its values stay.
  // values  [at most kDoublingBytesMax]
  // Errors: as Wire
  Result<CallOutcome> AgreeAndReduce(const CallTag& tag, const CallShape& shape,
                                     const Values& values, const Reduction& reduction);

 private:
  struct Header {
    uint64_t digest = 0;
    CallShape shape;
    uint32_t is_declined = 0;
    uint32_t payload_bytes = 0;  // of the values that follow
  };

  static_assert(sizeof(Header) == 40);  // no padding, because the header is sent as bytes

  void Begin(const CallTag& tag, const CallShape& shape, Bytes payload);
  Status Run(double scale);
  Status StartSend(int to);
  Status AwaitSend(int to);
  Status Receive(int from);
  void Combine(int from, double scale);
  Status ExchangeAndCombine(int other, double scale);

  Wire& wire_;
  const Folding folding_;
  Header mine_;  // combined from the headers received so far
  Header theirs_;
  std::vector<std::byte> my_payload_;
  std::vector<std::byte> their_payload_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_AGREEMENT_H_
