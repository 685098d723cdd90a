// lmdbio/sync/over_wire/wire_algorithms.h - the algorithms of collectives over a wire.
//
// docs/collectives.md "Messages" lists the costs. The ranks have agreed on the call (see
// wire_agreement.h), so all of them make it with the same sizes. One rank reduces each value, in
// one order, and the others copy the result. So all ranks have the same bits, in every run. The
// step that completes a result scales it before sending it. A single rank takes no step, so its
// values stay unchanged.
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

// Memory for data that was received and is not reduced yet. The memory stays for later calls.
class WireScratch {
 public:
  // At least `bytes` bytes. Earlier contents are lost.
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

// The resources of an algorithm.
struct WireJob {
  Wire& wire;
  WireScratch& scratch;
  uint64_t chunk_bytes;  // > 0; the size of a message, rounded down to whole elements
  uint32_t chunk_depth;  // > 0; the number of chunks that a rank receives at once
};

// Ring: every rank sends to the next rank alone. The values are divided into P parts. The partial
// sums of all parts travel round the ring once, and then the results do.
// Errors: as Wire
Status RingAllReduce(WireJob job, const Values& values, const Reduction& reduction);
// all  [the bytes of all ranks, rank after rank] holds the part of this rank at the beginning
// Errors: as Wire
Status RingAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes);

// Doubling: the same result in log2 P steps, and 2 more if P is no power of two. In step k a rank
// exchanges all parts that it has with the rank whose number differs in bit k.
// Errors: as Wire
Status DoublingAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes);

// Recursive halving and doubling: in each of log2 P steps a pair of ranks exchanges the halves of
// its remaining range, and each rank reduces the half that it keeps. Then the steps run backwards
// and each pair exchanges results.
// Errors: as Wire
Status HalvingAllReduce(WireJob job, const Values& values, const Reduction& reduction);
// The first log2 P steps of it, and the others. Between them each rank has its part of the result,
// or none if it folds.
// Errors: as Wire
Status HalvingReduceToParts(WireJob job, const Values& values, const Reduction& reduction);
Status HalvingGatherParts(WireJob job, const Values& values);

// Direct: each rank sends each other rank its part, reduces its own part in the order of ranks, and
// sends the result to all. Needs a connection to every rank.
// Errors: as Wire
Status DirectAllReduce(WireJob job, const Values& values, const Reduction& reduction);
// output  [the part of this rank] apart from `input`, or this rank's part of it
// counts  [ranks] elements of each part
// Errors: as Wire
Status DirectReduceScatter(WireJob job, const Values& input, std::byte* output,
                           std::span<const uint64_t> counts, const Reduction& reduction);
// As RingAllGather.
// Errors: as Wire
Status DirectAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes);
// Requires: sizes fit each other, see Collectives::AllToAll
// Errors: as Wire
Status DirectAllToAll(WireJob job, Bytes send, std::span<const uint64_t> send_bytes,
                      MutableBytes receive, std::span<const uint64_t> receive_bytes);

// A binomial tree if there are fewer chunks than ranks. Otherwise a chain, in which each rank
// forwards a chunk as soon as it has received it.
// Errors: as Wire
Status TreeOrChainBroadcast(WireJob job, MutableBytes bytes, int root);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_ALGORITHMS_H_
