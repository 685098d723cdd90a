#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"

namespace lmdbio::sync {
namespace {

// With W workers, step s of the first half pairs workers whose numbers differ in bit
// log2 W - 1 - s. Both have the same range of 2 `half` parts. The worker with the bit 0 keeps the
// lower half of the range, and the other worker the upper half. After log2 W steps each worker has
// one complete part. The second half runs the steps backwards and exchanges complete parts.
class Halving {
 public:
  Halving(const WireJob& job, const Values& values, const Reduction& reduction)
      : job_(job),
        values_(values),
        reduction_(reduction),
        folding_(job.wire.rank(), job.wire.size()),
        bounds_(EvenBounds(values.count, ElementBytes(values.type), folding_.worker_count())),
        all_(values.data, bounds_.back()) {}

  Status Run();

 private:
  // The parts of `count` workers.
  MutableBytes Parts(int first, int count) const {
    const uint64_t begin = bounds_[static_cast<size_t>(first)];
    const uint64_t end = bounds_[static_cast<size_t>(first) + static_cast<size_t>(count)];
    return all_.subspan(begin, end - begin);
  }
  Status Halve(int first, int half);
  Status Double(int first, int half);
  Status GiveAway();

  const WireJob& job_;
  const Values& values_;
  const Reduction reduction_;
  const Folding folding_;
  const Bounds bounds_;  // of the workers' parts
  const MutableBytes all_;
};

// Sends the half of the range that does not contain the part of this worker, and reduces the other.
// first  the first part of the range
Status Halving::Halve(int first, int half) {
  const int worker = folding_.worker();
  const int other = folding_.RankOf(worker ^ half);
  const MutableBytes lower = Parts(first, half);
  const MutableBytes upper = Parts(first + half, half);
  const bool is_upper = (worker & half) != 0;
  const MutableBytes given = is_upper ? lower : upper;
  LMDBIO_TRY_VOID(StartSends(job_, other, given));
  const bool is_complete = half == 1;
  LMDBIO_TRY_VOID(ReceiveAndReduce(job_, other, is_upper ? upper : lower, values_.type,
                                   is_complete ? reduction_ : reduction_.op));
  return AwaitSends(job_, other, given);
}

// The reverse of Halve: exchanges the complete halves of the range.
Status Halving::Double(int first, int half) {
  const int worker = folding_.worker();
  const int other = folding_.RankOf(worker ^ half);
  const bool is_upper = (worker & half) != 0;
  const MutableBytes mine = Parts(is_upper ? first + half : first, half);
  const MutableBytes theirs = Parts(is_upper ? first : first + half, half);
  LMDBIO_TRY_VOID(StartReceives(job_, other, theirs));
  LMDBIO_TRY_VOID(StartSends(job_, other, mine));
  LMDBIO_TRY_VOID(AwaitReceives(job_, other, theirs));
  return AwaitSends(job_, other, mine);
}

// For a rank that is no worker: gives its values to its partner, and receives the result.
Status Halving::GiveAway() {
  const int partner = folding_.partner();
  LMDBIO_TRY_VOID(StartSends(job_, partner, all_));
  LMDBIO_TRY_VOID(AwaitSends(job_, partner, all_));
  LMDBIO_TRY_VOID(StartReceives(job_, partner, all_));
  return AwaitReceives(job_, partner, all_);
}

Status Halving::Run() {
  if (!folding_.is_worker()) return GiveAway();
  const int partner = folding_.partner();
  if (partner >= 0) {
    LMDBIO_TRY_VOID(ReceiveAndReduce(job_, partner, all_, values_.type, reduction_.op));
  }
  const int worker = folding_.worker();
  for (int half = folding_.worker_count() / 2; half > 0; half /= 2) {
    LMDBIO_TRY_VOID(Halve(worker & ~(2 * half - 1), half));
  }
  for (int half = 1; half < folding_.worker_count(); half *= 2) {
    LMDBIO_TRY_VOID(Double(worker & ~(2 * half - 1), half));
  }
  if (partner < 0) return {};
  LMDBIO_TRY_VOID(StartSends(job_, partner, all_));
  return AwaitSends(job_, partner, all_);
}

}  // namespace

Status HalvingAllReduce(WireJob job, const Values& values, const Reduction& reduction) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  job.chunk_bytes = WholeElements(job.chunk_bytes);
  return Halving(job, values, reduction).Run();
}

}  // namespace lmdbio::sync
