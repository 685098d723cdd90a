#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::sync {
namespace {

// Ring AllReduce, in 2 (P - 1) steps. In step k = 0, 1, ... a rank sends part (rank - k) mod P to
// the next rank, and receives part (rank - k - 1) mod P, which it sends in the next step.
//
// In the first P - 1 steps a rank reduces the received part into its values (reduce-scatter).
// Then the part that it received last is complete. In the other P - 1 steps it receives complete
// parts and stores them (allgather).
//
// Each part is divided into chunks, and a rank forwards a chunk as soon as it has reduced it. So
// the ranks work like a pipeline. The members count chunks over all steps: chunk i belongs to step
// i / chunk_count_.
class RingReduction {
 public:
  RingReduction(WireValues& values, const Reduction& reduction)
      : values_(values),
        pieces_(values.pieces()),
        reduction_(reduction),
        size_(static_cast<uint64_t>(values.size())),
        rank_(static_cast<uint64_t>(values.rank())),
        next_(static_cast<int>((rank_ + 1) % size_)),
        before_(static_cast<int>((rank_ + size_ - 1) % size_)),
        bounds_(EvenBounds(pieces_.count, ElementBytes(pieces_.type), values.size())),
        chunk_count_(ChunkCount(bounds_[1], pieces_.chunk_bytes)),  // of part 0: no part has more
        depth_(std::min(pieces_.chunk_depth, chunk_count_)),
        reduced_count_((size_ - 1) * chunk_count_) {}

  Status Run();

 private:
  // The destination of the i-th received chunk.
  ValueRange Chunk(uint64_t i) const { return ChunkAt(i / chunk_count_ + 1, i % chunk_count_); }
  // A chunk of the part that this rank sends in `step`.
  ValueRange ChunkAt(uint64_t step, uint64_t chunk) const {
    const auto part = static_cast<int>((rank_ + 2 * size_ - step) % size_);
    return ChunkOf(RangeOf(bounds_, part), chunk, pieces_.chunk_bytes);
  }
  Status Post();

  WireValues& values_;
  const WirePieces pieces_;
  const Reduction reduction_;
  const uint64_t size_;
  const uint64_t rank_;
  const int next_;
  const int before_;
  const Bounds bounds_;
  const uint64_t chunk_count_;  // of each part; the last chunk may be empty
  const uint64_t depth_;
  const uint64_t reduced_count_;  // the first chunks are reduced, and as many then stored
  uint64_t posted_count_ = 0;     // receives that were begun
  uint64_t sent_count_ = 0;       // sends that were awaited
};

Status RingReduction::Post() {
  const uint64_t i = posted_count_++;
  if (i < reduced_count_) return values_.StartReduce(before_, i, Chunk(i));
  // A complete part overwrites values that this rank sent P - 1 steps before. That send must be
  // over.
  for (; sent_count_ <= i - reduced_count_; ++sent_count_) {
    LMDBIO_TRY_VOID(values_.AwaitSend(next_));
  }
  return values_.StartStore(before_, Chunk(i));
}

Status RingReduction::Run() {
  const uint64_t count = 2 * reduced_count_;
  for (uint64_t chunk = 0; chunk < chunk_count_; ++chunk) {
    LMDBIO_TRY_VOID(values_.StartSend(next_, ChunkAt(0, chunk)));
  }
  while (posted_count_ < depth_) LMDBIO_TRY_VOID(Post());
  for (uint64_t i = 0; i < count; ++i) {
    const int forward_to = i + chunk_count_ < count ? next_ : WireValues::kNobody;
    if (i < reduced_count_) {
      const bool is_complete = i + chunk_count_ >= reduced_count_;
      LMDBIO_TRY_VOID(values_.FinishReduce(before_, i, Chunk(i),
                                           is_complete ? reduction_ : reduction_.op, forward_to));
    } else {
      LMDBIO_TRY_VOID(values_.FinishStore(before_, Chunk(i), forward_to));
    }
    if (posted_count_ < count) LMDBIO_TRY_VOID(Post());
  }
  for (; sent_count_ < count; ++sent_count_) LMDBIO_TRY_VOID(values_.AwaitSend(next_));
  return {};
}

}  // namespace

Status RingAllReduce(WireValues& values, const Reduction& reduction) {
  return RingReduction(values, reduction).Run();
}

Status RingAllReduce(WireJob job, const Values& values, const Reduction& reduction) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  HostValues on_host(job, values, 1);
  return RingAllReduce(on_host, reduction);
}

// In step k a rank receives part (rank - k) mod P from the rank before it, and sends it on.
Status RingAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes) {
  const int size = job.wire.size();
  const int rank = job.wire.rank();
  if (size == 1) return {};
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  const Bounds bounds = BoundsOf(part_bytes);
  const auto part_at = [&](int step) {
    return PartOf(all.data(), bounds, (rank + size - step) % size);
  };
  for (int step = 1; step < size; ++step) {
    LMDBIO_TRY_VOID(StartReceives(job, before, part_at(step)));
  }
  LMDBIO_TRY_VOID(StartSends(job, next, part_at(0)));
  for (int step = 1; step < size; ++step) {
    const MutableBytes part = part_at(step);
    for (uint64_t i = 0; i < ChunkCount(part.size(), job.chunk_bytes); ++i) {
      LMDBIO_TRY_VOID(job.wire.AwaitReceive(before));
      if (step + 1 == size) continue;  // the part belongs to the next rank
      LMDBIO_TRY_VOID(job.wire.StartSend(next, ChunkOf(part, i, job.chunk_bytes)));
    }
  }
  for (int step = 0; step + 1 < size; ++step) {
    LMDBIO_TRY_VOID(AwaitSends(job, next, part_at(step)));
  }
  return {};
}

}  // namespace lmdbio::sync
