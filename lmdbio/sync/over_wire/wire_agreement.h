// lmdbio/sync/over_wire/wire_agreement.h - how ranks find out that they mean the same call.
//
// Recursive doubling over headers: after log2 of the ranks' number of steps, every rank knows
// whether any rank declined or means another call. Whatever the ranks mean, the messages of this
// round are the same, so that no rank waits for one that does not come. A small AllReduce sends its
// values along, and is over when the round is.
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
};

// What a rank means by its call; ranks whose shapes differ mean different calls.
struct CallShape {
  WireCall kind = WireCall::kBarrier;
  uint8_t type = 0;
  uint8_t op = 0;
  uint8_t reserved = 0;
  int32_t root = 0;
  uint64_t bytes = 0;
  uint64_t details_digest = 0;  // of the scale and of the sizes of ranks' parts, if there are any

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

// Tells lists of sizes apart.
uint64_t DigestOf(std::span<const uint64_t> parts);

// As many workers as the largest power of two that there are ranks for: they do the work of an
// algorithm that wants such a number. The first ranks come in pairs, of which the even one gives
// its values to the odd one, a worker, and gets the result from it.
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

  // Collective. kDone if nobody declined and all mean the same.
  // Errors: as Wire
  Result<CallOutcome> Agree(const CallTag& tag, const CallShape& shape);

  // Collective. The same, and then `values` are the reduction of everybody's; untouched on
  // kDeclined. The last exchange scales the result. One rank alone has none, so its values stay.
  // values  [at most kDoublingBytesMax]
  // Errors: as Wire
  Result<CallOutcome> AgreeAndReduce(const CallTag& tag, const CallShape& shape,
                                     const Values& values, const sync::Reduction& reduction);

 private:
  struct Header {
    uint64_t digest = 0;
    CallShape shape;
    uint32_t is_declined = 0;
    uint32_t payload_bytes = 0;  // that follow
  };

  static_assert(sizeof(Header) == 40);  // no padding: it travels as it is

  void Begin(const CallTag& tag, const CallShape& shape, Bytes payload);
  Status Run(double scale);
  Status StartSend(int to);
  Status AwaitSend(int to);
  Status Receive(int from);
  void Combine(int from, double scale);
  Status ExchangeAndCombine(int other, double scale);

  Wire& wire_;
  const Folding folding_;
  Header mine_;  // of all ranks that this one has heard of
  Header theirs_;
  std::vector<std::byte> my_payload_;
  std::vector<std::byte> their_payload_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_AGREEMENT_H_
