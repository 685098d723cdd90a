#include "lmdbio/sync/over_wire/wire_chunks.h"

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

}  // namespace lmdbio::sync
