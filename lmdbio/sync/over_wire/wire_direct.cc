#include <algorithm>
#include <vector>

#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

WireJob WithinScratch(WireJob job) {
  const uint64_t most = DirectChunkBytesMax(job.wire.size(), job.chunk_depth);
  job.chunk_bytes = WholeElements(std::min(job.chunk_bytes, most));
  return job;
}

// The other ranks, beginning with the next one. So the ranks do not all begin with the same rank.
int OtherOf(const Wire& wire, int i) { return (wire.rank() + i) % wire.size(); }

// Reduces the part of this rank over the inputs of all ranks. Chunks are received into slots, one
// for each rank and each of `depth_` chunks.
class PartReducer {
 public:
  // input  [the parts of all ranks, divided by bounds]
  PartReducer(const WireJob& job, const Values& input, const Bounds& bounds,
              const Reduction& reduction)
      : job_(job),
        input_(input),
        bounds_(bounds),
        reduction_(reduction),
        own_(PartOf(input.data, bounds, job.wire.rank())),
        depth_(std::min<uint64_t>(job.chunk_depth, ChunkCount(own_.size(), job.chunk_bytes))),
        rank_count_(static_cast<uint64_t>(job.wire.size())),
        scratch_(job.scratch.AtLeast(depth_ * rank_count_ * job.chunk_bytes)),
        sources_(rank_count_) {}

  // Begins to send the parts of the other ranks, and to receive the part of this rank.
  Status Start();
  uint64_t chunk_count() const { return ChunkCount(own_.size(), job_.chunk_bytes); }
  // Reduces a chunk into `output`, the memory of the whole part. Call it for each chunk in order.
  Status ReduceChunk(uint64_t chunk, MutableBytes output);

 private:
  // The slots of one chunk are neighbours: slot (chunk mod depth, rank).
  std::byte* Slot(uint64_t chunk, int rank) const {
    const uint64_t slot = chunk % depth_ * rank_count_ + static_cast<uint64_t>(rank);
    return scratch_.data() + slot * job_.chunk_bytes;
  }
  Status Post(uint64_t chunk);

  const WireJob& job_;
  const Values& input_;
  const Bounds& bounds_;
  const Reduction reduction_;
  const MutableBytes own_;
  const uint64_t depth_;
  const uint64_t rank_count_;
  const MutableBytes scratch_;
  std::vector<const std::byte*> sources_;
};

Status PartReducer::Start() {
  for (int i = 1; i < job_.wire.size(); ++i) {
    const int other = OtherOf(job_.wire, i);
    LMDBIO_TRY_VOID(StartSends(job_, other, PartOf(input_.data, bounds_, other)));
  }
  for (uint64_t chunk = 0; chunk < depth_; ++chunk) LMDBIO_TRY_VOID(Post(chunk));
  return {};
}

Status PartReducer::Post(uint64_t chunk) {
  const size_t bytes = ChunkOf(own_, chunk, job_.chunk_bytes).size();
  for (int i = 1; i < job_.wire.size(); ++i) {
    const int other = OtherOf(job_.wire, i);
    LMDBIO_TRY_VOID(job_.wire.StartReceive(other, MutableBytes(Slot(chunk, other), bytes)));
  }
  return {};
}

// Takes the sources in the order of the ranks, so the bits do not depend on arrival. The slots of
// the chunk are free for a later one afterwards.
Status PartReducer::ReduceChunk(uint64_t chunk, MutableBytes output) {
  const MutableBytes mine = ChunkOf(own_, chunk, job_.chunk_bytes);
  for (int rank = 0; rank < job_.wire.size(); ++rank) {
    sources_[static_cast<size_t>(rank)] =
        rank == job_.wire.rank() ? mine.data() : Slot(chunk, rank);
    if (rank != job_.wire.rank()) LMDBIO_TRY_VOID(job_.wire.AwaitReceive(rank));
  }
  ReduceAll(input_.type, reduction_, ChunkOf(output, chunk, job_.chunk_bytes).data(), sources_,
            mine.size() / ElementBytes(input_.type));
  return chunk + depth_ < chunk_count() ? Post(chunk + depth_) : Status();
}

}  // namespace

// Two steps: every rank reduces its own part, and sends each chunk of the result to all ranks as
// soon as it is complete. Results that arrive before their receive has begun wait in the
// connection.
Status DirectAllReduce(WireJob given, const Values& values, const Reduction& reduction) {
  Wire& wire = given.wire;
  if (wire.size() == 1 || values.count == 0) return {};
  const WireJob job = WithinScratch(given);
  const Bounds bounds = EvenBounds(values.count, ElementBytes(values.type), wire.size());
  const MutableBytes own = PartOf(values.data, bounds, wire.rank());
  PartReducer reducer(job, values, bounds, reduction);
  LMDBIO_TRY_VOID(reducer.Start());
  for (uint64_t chunk = 0; chunk < reducer.chunk_count(); ++chunk) {
    LMDBIO_TRY_VOID(reducer.ReduceChunk(chunk, own));
    for (int i = 1; i < wire.size(); ++i) {
      LMDBIO_TRY_VOID(wire.StartSend(OtherOf(wire, i), ChunkOf(own, chunk, job.chunk_bytes)));
    }
  }
  for (int i = 1; i < wire.size(); ++i) {
    // The result of a part overwrites the values that were sent, so their sends must be over.
    const int other = OtherOf(wire, i);
    const MutableBytes theirs = PartOf(values.data, bounds, other);
    LMDBIO_TRY_VOID(AwaitSends(job, other, theirs));
    LMDBIO_TRY_VOID(StartReceives(job, other, theirs));
  }
  for (int i = 1; i < wire.size(); ++i) {
    const int other = OtherOf(wire, i);
    LMDBIO_TRY_VOID(AwaitReceives(job, other, PartOf(values.data, bounds, other)));
    LMDBIO_TRY_VOID(AwaitSends(job, other, own));
  }
  return {};
}

// The first step of DirectAllReduce alone.
Status DirectReduceScatter(WireJob given, const Values& input, std::byte* output,
                           std::span<const uint64_t> counts, const Reduction& reduction) {
  const WireJob job = WithinScratch(given);
  const Bounds bounds = BoundsOf(counts, ElementBytes(input.type));
  const MutableBytes own = PartOf(input.data, bounds, job.wire.rank());
  PartReducer reducer(job, input, bounds, reduction);
  LMDBIO_TRY_VOID(reducer.Start());
  for (uint64_t chunk = 0; chunk < reducer.chunk_count(); ++chunk) {
    LMDBIO_TRY_VOID(reducer.ReduceChunk(chunk, MutableBytes(output, own.size())));
  }
  for (int i = 1; i < job.wire.size(); ++i) {
    const int other = OtherOf(job.wire, i);
    LMDBIO_TRY_VOID(AwaitSends(job, other, PartOf(input.data, bounds, other)));
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
