#include "lmdbio/sync/over_wire/wire_chunks.h"

#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {

// The table of rank 0 gives all ranks the same chunk size, so the messages of a sender and its
// receiver have the same bounds.
Status StartSends(const WireJob& job, int to, MutableBytes run) {
  for (uint64_t i = 0; i < ChunkCount(run.size(), job.chunk_bytes); ++i) {
    LMDBIO_TRY_VOID(job.wire.StartSend(to, ChunkOf(run, i, job.chunk_bytes)));
  }
  return {};
}

Status StartReceives(const WireJob& job, int from, MutableBytes run) {
  for (uint64_t i = 0; i < ChunkCount(run.size(), job.chunk_bytes); ++i) {
    LMDBIO_TRY_VOID(job.wire.StartReceive(from, ChunkOf(run, i, job.chunk_bytes)));
  }
  return {};
}

Status AwaitSends(const WireJob& job, int to, MutableBytes run) {
  for (uint64_t i = 0; i < ChunkCount(run.size(), job.chunk_bytes); ++i) {
    LMDBIO_TRY_VOID(job.wire.AwaitSend(to));
  }
  return {};
}

Status AwaitReceives(const WireJob& job, int from, MutableBytes run) {
  for (uint64_t i = 0; i < ChunkCount(run.size(), job.chunk_bytes); ++i) {
    LMDBIO_TRY_VOID(job.wire.AwaitReceive(from));
  }
  return {};
}

// Keeps `depth` receives under way, each into a slot of the scratch memory. So chunks arrive while
// an earlier chunk is reduced.
Status ReceiveAndReduce(const WireJob& job, int from, MutableBytes run, DataType type,
                        const Reduction& reduction) {
  const uint64_t count = ChunkCount(run.size(), job.chunk_bytes);
  const uint64_t depth = std::min<uint64_t>(job.chunk_depth, count);
  const MutableBytes scratch = job.scratch.AtLeast(depth * job.chunk_bytes);
  const auto slot = [&](uint64_t i) {
    return scratch.subspan(i % depth * job.chunk_bytes, ChunkOf(run, i, job.chunk_bytes).size());
  };
  for (uint64_t i = 0; i < depth; ++i) LMDBIO_TRY_VOID(job.wire.StartReceive(from, slot(i)));
  for (uint64_t i = 0; i < count; ++i) {
    LMDBIO_TRY_VOID(job.wire.AwaitReceive(from));
    const MutableBytes chunk = ChunkOf(run, i, job.chunk_bytes);
    Reduce(type, reduction, chunk.data(), slot(i).data(), chunk.size() / ElementBytes(type));
    // The slot of this chunk is free now, so it can take a later chunk.
    if (i + depth < count) {
      LMDBIO_TRY_VOID(job.wire.StartReceive(from, slot(i + depth)));
    }
  }
  return {};
}

}  // namespace lmdbio::sync
