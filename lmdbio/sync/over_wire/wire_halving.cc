#include <algorithm>

#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::sync {
namespace {

// With W workers, step s of the first half pairs workers whose numbers differ in bit
// log2 W - 1 - s. Both have the same range of 2 `half` parts. The worker with the bit 0 keeps the
// lower half of the range, and the other worker the upper half. After log2 W steps each worker has
// one complete part. The second half runs the steps backwards and exchanges complete parts.
class Halving {
 public:
  Halving(WireValues& values, const Reduction& reduction)
      : values_(values),
        pieces_(values.pieces()),
        reduction_(reduction),
        folding_(values.rank(), values.size()),
        bounds_(EvenBounds(pieces_.count, ElementBytes(pieces_.type), folding_.worker_count())),
        all_{0, bounds_.back()} {}

  Status ReduceToParts();
  Status GatherParts();

 private:
  // The parts of `count` workers.
  ValueRange Parts(int first, int count) const {
    const uint64_t begin = bounds_[static_cast<size_t>(first)];
    const uint64_t end = bounds_[static_cast<size_t>(first) + static_cast<size_t>(count)];
    return {begin, end - begin};
  }
  uint64_t ChunksOf(const ValueRange& run) const {
    return ChunkCount(run.size_bytes, pieces_.chunk_bytes);
  }
  ValueRange Chunk(const ValueRange& run, uint64_t i) const {
    return ChunkOf(run, i, pieces_.chunk_bytes);
  }
  // Begin, or await, the transfers of all chunks.
  Status StartSends(int to, const ValueRange& run);
  Status AwaitSends(int to, const ValueRange& run);
  Status StartStores(int from, const ValueRange& run);
  Status FinishStores(int from, const ValueRange& run);
  Status ReceiveAndReduce(int from, const ValueRange& run, const Reduction& reduction);

  Status Halve(int first, int half);
  Status Double(int first, int half);

  WireValues& values_;
  const WirePieces pieces_;
  const Reduction reduction_;
  const Folding folding_;
  const Bounds bounds_;  // of the workers' parts
  const ValueRange all_;
};

Status Halving::StartSends(int to, const ValueRange& run) {
  for (uint64_t i = 0; i < ChunksOf(run); ++i) {
    LMDBIO_TRY_VOID(values_.StartSend(to, Chunk(run, i)));
  }
  return {};
}

Status Halving::AwaitSends(int to, const ValueRange& run) {
  for (uint64_t i = 0; i < ChunksOf(run); ++i) LMDBIO_TRY_VOID(values_.AwaitSend(to));
  return {};
}

Status Halving::StartStores(int from, const ValueRange& run) {
  for (uint64_t i = 0; i < ChunksOf(run); ++i) {
    LMDBIO_TRY_VOID(values_.StartStore(from, Chunk(run, i)));
  }
  return {};
}

Status Halving::FinishStores(int from, const ValueRange& run) {
  for (uint64_t i = 0; i < ChunksOf(run); ++i) {
    LMDBIO_TRY_VOID(values_.FinishStore(from, Chunk(run, i), WireValues::kNobody));
  }
  return {};
}

// Keeps `depth` receives under way. So chunks arrive while an earlier chunk is reduced.
Status Halving::ReceiveAndReduce(int from, const ValueRange& run, const Reduction& reduction) {
  const uint64_t count = ChunksOf(run);
  const uint64_t depth = std::min(pieces_.chunk_depth, count);
  for (uint64_t i = 0; i < depth; ++i) {
    LMDBIO_TRY_VOID(values_.StartReduce(from, i, Chunk(run, i)));
  }
  for (uint64_t i = 0; i < count; ++i) {
    LMDBIO_TRY_VOID(values_.FinishReduce(from, i, Chunk(run, i), reduction, WireValues::kNobody));
    if (i + depth < count) {
      LMDBIO_TRY_VOID(values_.StartReduce(from, i + depth, Chunk(run, i + depth)));
    }
  }
  return {};
}

// Sends the half of the range that does not contain the part of this worker, and reduces the other.
// first  the first part of the range
Status Halving::Halve(int first, int half) {
  const int worker = folding_.worker();
  const int other = folding_.RankOf(worker ^ half);
  const ValueRange lower = Parts(first, half);
  const ValueRange upper = Parts(first + half, half);
  const bool is_upper = (worker & half) != 0;
  const ValueRange& given = is_upper ? lower : upper;
  LMDBIO_TRY_VOID(StartSends(other, given));
  const bool is_complete = half == 1;
  LMDBIO_TRY_VOID(
      ReceiveAndReduce(other, is_upper ? upper : lower, is_complete ? reduction_ : reduction_.op));
  return AwaitSends(other, given);
}

// The reverse of Halve: exchanges the complete halves of the range.
Status Halving::Double(int first, int half) {
  const int worker = folding_.worker();
  const int other = folding_.RankOf(worker ^ half);
  const bool is_upper = (worker & half) != 0;
  const ValueRange mine = Parts(is_upper ? first + half : first, half);
  const ValueRange theirs = Parts(is_upper ? first : first + half, half);
  LMDBIO_TRY_VOID(StartStores(other, theirs));
  LMDBIO_TRY_VOID(StartSends(other, mine));
  LMDBIO_TRY_VOID(FinishStores(other, theirs));
  return AwaitSends(other, mine);
}

// A rank that is no worker gives its values to its partner.
Status Halving::ReduceToParts() {
  const int partner = folding_.partner();
  if (!folding_.is_worker()) {
    LMDBIO_TRY_VOID(StartSends(partner, all_));
    return AwaitSends(partner, all_);
  }
  if (partner >= 0) LMDBIO_TRY_VOID(ReceiveAndReduce(partner, all_, reduction_.op));
  const int worker = folding_.worker();
  for (int half = folding_.worker_count() / 2; half > 0; half /= 2) {
    LMDBIO_TRY_VOID(Halve(worker & ~(2 * half - 1), half));
  }
  return {};
}

// A rank that is no worker gets the result from its partner.
Status Halving::GatherParts() {
  const int partner = folding_.partner();
  if (!folding_.is_worker()) {
    LMDBIO_TRY_VOID(StartStores(partner, all_));
    return FinishStores(partner, all_);
  }
  const int worker = folding_.worker();
  for (int half = 1; half < folding_.worker_count(); half *= 2) {
    LMDBIO_TRY_VOID(Double(worker & ~(2 * half - 1), half));
  }
  if (partner < 0) return {};
  LMDBIO_TRY_VOID(StartSends(partner, all_));
  return AwaitSends(partner, all_);
}

}  // namespace

Status HalvingAllReduce(WireValues& values, const Reduction& reduction) {
  Halving halving(values, reduction);
  LMDBIO_TRY_VOID(halving.ReduceToParts());
  return halving.GatherParts();
}

Status HalvingAllReduce(WireJob job, const Values& values, const Reduction& reduction) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  HostValues on_host(job, values, 1);
  return HalvingAllReduce(on_host, reduction);
}

Status HalvingReduceToParts(WireJob job, const Values& values, const Reduction& reduction) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  HostValues on_host(job, values, 1);
  return Halving(on_host, reduction).ReduceToParts();
}

Status HalvingGatherParts(WireJob job, const Values& values) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  HostValues on_host(job, values, 1);
  return Halving(on_host, ReduceOp::kSum).GatherParts();
}

}  // namespace lmdbio::sync
