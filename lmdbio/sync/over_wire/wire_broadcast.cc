#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"

namespace lmdbio::sync {
namespace {

// A binomial tree. Ranks are numbered from the root, as positions. A position receives from the
// position without its lowest bit that is set. Then it sends to the positions that have one more
// bit below that bit.
Status TreeBroadcast(const WireJob& job, MutableBytes bytes, int root) {
  const int size = job.wire.size();
  const int position = (job.wire.rank() + size - root) % size;
  const auto rank_at = [&](int other_position) { return (other_position + root) % size; };
  int bit = 1;
  while (bit < size && (position & bit) == 0) bit *= 2;
  if (position != 0) {
    const int from = rank_at(position - bit);
    LMDBIO_TRY_VOID(StartReceives(job, from, bytes));
    LMDBIO_TRY_VOID(AwaitReceives(job, from, bytes));
  }
  // The largest subtree comes first, because its last rank is the most steps away.
  const int first_bit = bit / 2;
  for (bit = first_bit; bit > 0; bit /= 2) {
    if (position + bit >= size) continue;
    LMDBIO_TRY_VOID(StartSends(job, rank_at(position + bit), bytes));
  }
  for (bit = first_bit; bit > 0; bit /= 2) {
    if (position + bit >= size) continue;
    LMDBIO_TRY_VOID(AwaitSends(job, rank_at(position + bit), bytes));
  }
  return {};
}

// A chain of all ranks from the root. Each rank forwards a chunk as soon as it has arrived. The
// last rank is complete P - 2 chunks later than the rank next to the root.
Status ChainBroadcast(const WireJob& job, MutableBytes bytes, int root) {
  const int size = job.wire.size();
  const int rank = job.wire.rank();
  const int before = (rank + size - 1) % size;
  const int next = (rank + 1) % size;
  if (rank == root) {
    LMDBIO_TRY_VOID(StartSends(job, next, bytes));
    return AwaitSends(job, next, bytes);
  }
  LMDBIO_TRY_VOID(StartReceives(job, before, bytes));
  if (next == root) return AwaitReceives(job, before, bytes);
  for (uint64_t i = 0; i < ChunkCount(bytes.size(), job.chunk_bytes); ++i) {
    LMDBIO_TRY_VOID(job.wire.AwaitReceive(before));
    LMDBIO_TRY_VOID(job.wire.StartSend(next, ChunkOf(bytes, i, job.chunk_bytes)));
  }
  return AwaitSends(job, next, bytes);
}

}  // namespace

Status TreeOrChainBroadcast(WireJob job, MutableBytes bytes, int root) {
  const auto size = static_cast<uint64_t>(job.wire.size());
  if (size == 1 || bytes.empty()) return {};
  // A chain first fills with P - 2 chunks, and a tree sends all bytes log2 P times. From as many
  // chunks as ranks on, the chain is done sooner.
  return ChunkCount(bytes.size(), job.chunk_bytes) < size ? TreeBroadcast(job, bytes, root)
                                                          : ChainBroadcast(job, bytes, root);
}

}  // namespace lmdbio::sync
