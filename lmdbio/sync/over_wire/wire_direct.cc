#include <algorithm>

#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::sync {
namespace {

WireJob WithinScratch(WireJob job) {
  const uint64_t most = DirectChunkBytesMax(job.wire.size(), job.chunk_depth);
  job.chunk_bytes = std::min(job.chunk_bytes, most);
  return job;
}

// The other ranks, beginning with the next one. So the ranks do not all begin with the same rank.
int OtherOf(const Wire& wire, int i) { return (wire.rank() + i) % wire.size(); }
int OtherOf(const WireValues& values, int i) { return (values.rank() + i) % values.size(); }

// The steps of the direct algorithm. Chunks of the part of this rank are received from all others
// at once.
class DirectReduction {
 public:
  // bounds  of the parts of all ranks
  DirectReduction(WireValues& values, const Bounds& bounds, const Reduction& reduction)
      : values_(values),
        pieces_(values.pieces()),
        bounds_(bounds),
        reduction_(reduction),
        own_(RangeOf(bounds, values.rank())),
        depth_(std::min(pieces_.chunk_depth, ChunksOf(own_))) {}

  // Begins to send the parts of the other ranks, and to receive the part of this rank.
  Status Start();
  // Reduces the part of this rank, and sends each chunk of the result to the others if `do_share`.
  Status ReduceOwn(bool do_share);
  Status AwaitParts(int to) { return AwaitSends(to, RangeOf(bounds_, to)); }
  // Receives the results of the other parts, after those parts were sent.
  Status Collect();

 private:
  uint64_t ChunksOf(const ValueRange& run) const {
    return ChunkCount(run.size_bytes, pieces_.chunk_bytes);
  }
  ValueRange Chunk(const ValueRange& run, uint64_t i) const {
    return ChunkOf(run, i, pieces_.chunk_bytes);
  }
  Status AwaitSends(int to, const ValueRange& run);
  Status Post(uint64_t chunk);

  WireValues& values_;
  const WirePieces pieces_;
  const Bounds& bounds_;
  const Reduction reduction_;
  const ValueRange own_;
  const uint64_t depth_;
};

Status DirectReduction::Start() {
  for (int i = 1; i < values_.size(); ++i) {
    const int other = OtherOf(values_, i);
    const ValueRange theirs = RangeOf(bounds_, other);
    for (uint64_t c = 0; c < ChunksOf(theirs); ++c) {
      LMDBIO_TRY_VOID(values_.StartSend(other, Chunk(theirs, c)));
    }
  }
  for (uint64_t chunk = 0; chunk < depth_; ++chunk) LMDBIO_TRY_VOID(Post(chunk));
  return {};
}

Status DirectReduction::Post(uint64_t chunk) {
  for (int i = 1; i < values_.size(); ++i) {
    LMDBIO_TRY_VOID(values_.StartReduce(OtherOf(values_, i), chunk, Chunk(own_, chunk)));
  }
  return {};
}

Status DirectReduction::AwaitSends(int to, const ValueRange& run) {
  for (uint64_t c = 0; c < ChunksOf(run); ++c) LMDBIO_TRY_VOID(values_.AwaitSend(to));
  return {};
}

Status DirectReduction::ReduceOwn(bool do_share) {
  const uint64_t count = ChunksOf(own_);
  for (uint64_t chunk = 0; chunk < count; ++chunk) {
    LMDBIO_TRY_VOID(values_.FinishReduceOfAll(chunk, Chunk(own_, chunk), reduction_));
    // The slots of the chunk are free for a later one.
    if (chunk + depth_ < count) LMDBIO_TRY_VOID(Post(chunk + depth_));
    for (int i = 1; i < values_.size() && do_share; ++i) {
      LMDBIO_TRY_VOID(values_.StartSend(OtherOf(values_, i), Chunk(own_, chunk)));
    }
  }
  return {};
}

Status DirectReduction::Collect() {
  for (int i = 1; i < values_.size(); ++i) {
    // The result of a part overwrites the values that were sent, so their sends must be over.
    const int other = OtherOf(values_, i);
    const ValueRange theirs = RangeOf(bounds_, other);
    LMDBIO_TRY_VOID(AwaitParts(other));
    for (uint64_t c = 0; c < ChunksOf(theirs); ++c) {
      LMDBIO_TRY_VOID(values_.StartStore(other, Chunk(theirs, c)));
    }
  }
  for (int i = 1; i < values_.size(); ++i) {
    const int other = OtherOf(values_, i);
    const ValueRange theirs = RangeOf(bounds_, other);
    for (uint64_t c = 0; c < ChunksOf(theirs); ++c) {
      LMDBIO_TRY_VOID(values_.FinishStore(other, Chunk(theirs, c), WireValues::kNobody));
    }
    LMDBIO_TRY_VOID(AwaitSends(other, own_));
  }
  return {};
}

}  // namespace

// Two steps: every rank reduces its own part, and sends each chunk of the result to all ranks as
// soon as it is complete. Results that arrive before their receive has begun wait in the
// connection.
Status DirectAllReduce(WireValues& values, const Reduction& reduction) {
  const WirePieces& pieces = values.pieces();
  const Bounds bounds = EvenBounds(pieces.count, ElementBytes(pieces.type), values.size());
  DirectReduction direct(values, bounds, reduction);
  LMDBIO_TRY_VOID(direct.Start());
  LMDBIO_TRY_VOID(direct.ReduceOwn(true));
  return direct.Collect();
}

Status DirectAllReduce(WireJob job, const Values& values, const Reduction& reduction) {
  if (job.wire.size() == 1 || values.count == 0) return {};
  HostValues on_host(WithinScratch(job), values, job.wire.size());
  return DirectAllReduce(on_host, reduction);
}

// The first step of DirectAllReduce alone.
Status DirectReduceScatter(WireJob job, const Values& input, std::byte* output,
                           std::span<const uint64_t> counts, const Reduction& reduction) {
  if (input.count == 0) return {};
  HostValues on_host(WithinScratch(job), input, job.wire.size());
  const Bounds bounds = BoundsOf(counts, ElementBytes(input.type));
  on_host.WriteTo(output, RangeOf(bounds, job.wire.rank()).begin);
  DirectReduction direct(on_host, bounds, reduction);
  LMDBIO_TRY_VOID(direct.Start());
  LMDBIO_TRY_VOID(direct.ReduceOwn(false));
  for (int i = 1; i < job.wire.size(); ++i) {
    LMDBIO_TRY_VOID(direct.AwaitParts(OtherOf(job.wire, i)));
  }
  return {};
}

Status DirectAllGather(WireJob job, MutableBytes all, std::span<const uint64_t> part_bytes) {
  const Bounds bounds = BoundsOf(part_bytes);
  const MutableBytes own = PartOf(all.data(), bounds, job.wire.rank());
  for (int i = 1; i < job.wire.size(); ++i) {
    const int other = OtherOf(job.wire, i);
    LMDBIO_TRY_VOID(StartReceives(job, other, PartOf(all.data(), bounds, other)));
    LMDBIO_TRY_VOID(StartSends(job, other, own));
  }
  for (int i = 1; i < job.wire.size(); ++i) {
    const int other = OtherOf(job.wire, i);
    LMDBIO_TRY_VOID(AwaitReceives(job, other, PartOf(all.data(), bounds, other)));
    LMDBIO_TRY_VOID(AwaitSends(job, other, own));
  }
  return {};
}

Status DirectAllToAll(WireJob job, Bytes send, std::span<const uint64_t> send_bytes,
                      MutableBytes receive, std::span<const uint64_t> receive_bytes) {
  const int rank = job.wire.rank();
  const Bounds sent = BoundsOf(send_bytes);
  const Bounds received = BoundsOf(receive_bytes);
  const auto part_to = [&](int other) {
    return PartOf(const_cast<std::byte*>(send.data()), sent, other);  // sends only read it
  };
  const auto part_from = [&](int other) { return PartOf(receive.data(), received, other); };
  for (int i = 1; i < job.wire.size(); ++i) {
    const int other = OtherOf(job.wire, i);
    LMDBIO_TRY_VOID(StartReceives(job, other, part_from(other)));
    LMDBIO_TRY_VOID(StartSends(job, other, part_to(other)));
  }
  std::ranges::copy(part_to(rank), part_from(rank).begin());
  for (int i = 1; i < job.wire.size(); ++i) {
    const int other = OtherOf(job.wire, i);
    LMDBIO_TRY_VOID(AwaitReceives(job, other, part_from(other)));
    LMDBIO_TRY_VOID(AwaitSends(job, other, part_to(other)));
  }
  return {};
}

}  // namespace lmdbio::sync
