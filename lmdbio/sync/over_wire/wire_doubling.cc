#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"

namespace lmdbio::sync {
namespace {

// The parts of `count` workers from `first` on, with the parts of the ranks that fold into them.
// Workers are numbered in the order of ranks, so the parts of consecutive workers are contiguous.
MutableBytes PartsOfWorkers(MutableBytes all, const Bounds& bounds, int pair_count, int first,
                            int count) {
  // Each of the first pair_count workers stands for two ranks.
  const auto first_rank = [pair_count](int worker) {
    return static_cast<size_t>(worker < pair_count ? 2 * worker : worker + pair_count);
  };
  const uint64_t begin = bounds[first_rank(first)];
  return all.subspan(begin, bounds[first_rank(first + count)] - begin);
}

}  // namespace

Status DoublingAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes) {
  const int rank = job.wire.rank();
  const Folding folding(rank, job.wire.size());
  const Bounds bounds = BoundsOf(part_bytes);
  const int partner = folding.partner();
  if (!folding.is_worker()) {
    const MutableBytes own = PartOf(all.data(), bounds, rank);
    LMDBIO_TRY_VOID(StartSends(job, partner, own));
    LMDBIO_TRY_VOID(AwaitSends(job, partner, own));
    LMDBIO_TRY_VOID(StartReceives(job, partner, all));
    return AwaitReceives(job, partner, all);
  }
  if (partner >= 0) {
    const MutableBytes theirs = PartOf(all.data(), bounds, partner);
    LMDBIO_TRY_VOID(StartReceives(job, partner, theirs));
    LMDBIO_TRY_VOID(AwaitReceives(job, partner, theirs));
  }
  const int pair_count = job.wire.size() - folding.worker_count();
  const int worker = folding.worker();
  // Before the step with `mask`, a worker has the parts of the `mask` workers whose numbers differ
  // from its own in lower bits only.
  for (int mask = 1; mask < folding.worker_count(); mask *= 2) {
    const int first = worker & ~(mask - 1);
    const int other = folding.RankOf(worker ^ mask);
    const MutableBytes mine = PartsOfWorkers(all, bounds, pair_count, first, mask);
    const MutableBytes theirs = PartsOfWorkers(all, bounds, pair_count, first ^ mask, mask);
    LMDBIO_TRY_VOID(StartReceives(job, other, theirs));
    LMDBIO_TRY_VOID(StartSends(job, other, mine));
    LMDBIO_TRY_VOID(AwaitReceives(job, other, theirs));
    LMDBIO_TRY_VOID(AwaitSends(job, other, mine));
  }
  if (partner < 0) return {};
  LMDBIO_TRY_VOID(StartSends(job, partner, all));
  return AwaitSends(job, partner, all);
}

}  // namespace lmdbio::sync
