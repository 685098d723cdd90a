// lmdbio/sync/over_wire/wire_algorithms.h - the algorithms of collectives over a wire.
//
// The costs are in docs/collectives.md "Messages". The ranks have agreed on the call before (see
// wire_agreement.h), so all of them make it with the same sizes. Each value is reduced in one place
// and in one order, and copied from there: all ranks have the same bits, in every run. The step
// that completes a result scales it, before it is sent on. One rank alone takes no step, so its
// values stay as they are.
//
// Errors of every call: as Wire. Every call is collective.
//
// Source: Awan et al. V-A (ring; recursive halving and doubling); R. Thakur, R. Rabenseifner,
// W. Gropp, Optimization of collective communication operations in MPICH (the same, and binomial
// trees); docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_ALGORITHMS_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_ALGORITHMS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// Memory for what was received and is not reduced yet; kept from call to call.
class WireScratch {
 public:
  // At least so many bytes; what was there before is gone.
  MutableBytes AtLeast(size_t bytes) {
    if (bytes > size_bytes_) {
      bytes_.reset(new std::byte[bytes]);  // not zero-filled: every byte is received first
      size_bytes_ = bytes;
    }
    return {bytes_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_bytes_ = 0;
};

// What an algorithm works with.
struct WireJob {
  Wire& wire;
  WireScratch& scratch;
  uint64_t chunk_bytes;  // > 0; messages are cut in so many, rounded down to whole elements
  uint32_t chunk_depth;  // > 0; so many are received at once
};

// Ring: every rank sends to the next one only. A part for each rank; partial sums go round once,
// then results.
// Errors: as Wire
Status RingAllReduce(WireJob job, const Values& values, const sync::Reduction& reduction);
// all  [everybody's bytes, rank after rank; this rank's are there]
// Errors: as Wire
Status RingAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes);

// Halving: pairs of ranks exchange halves of what they are left with and reduce them, then double
// what they have.
// Errors: as Wire
Status HalvingAllReduce(WireJob job, const Values& values, const sync::Reduction& reduction);

// Direct: everybody sends everybody its part, reduces its own in the order of ranks, and sends the
// result to everybody.
// Errors: as Wire
Status DirectAllReduce(WireJob job, const Values& values, const sync::Reduction& reduction);
// output  [the part of this rank; not in `input`, or its own part there]
// counts  [of each rank's part]
// Errors: as Wire
Status DirectReduceScatter(WireJob job, const Values& input, std::byte* output,
                           std::span<const uint64_t> counts, const sync::Reduction& reduction);
// As RingAllGather.
// Errors: as Wire
Status DirectAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes);
// Requires: sizes fit each other, see Collectives::AllToAll
// Errors: as Wire
Status DirectAllToAll(WireJob job, Bytes send, std::span<const uint64_t> send_bytes,
                      MutableBytes receive, std::span<const uint64_t> receive_bytes);

// Binomial tree where there are fewer chunks than ranks, or else a chain, through which chunks
// follow each other.
// Errors: as Wire
Status TreeOrChainBroadcast(WireJob job, MutableBytes bytes, int root);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_ALGORITHMS_H_
