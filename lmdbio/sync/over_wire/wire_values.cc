#include "lmdbio/sync/over_wire/wire_values.h"

#include <algorithm>

#include "lmdbio/base/align.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {

WirePieces PiecesOf(uint64_t count, DataType type, uint64_t chunk_bytes, uint32_t chunk_depth) {
  WirePieces pieces{.count = count, .type = type};
  const uint64_t size_bytes = pieces.size_bytes();
  pieces.chunk_bytes = std::min(WholeElements(chunk_bytes), AlignUp(size_bytes, 8));
  pieces.chunk_depth = std::min<uint64_t>(chunk_depth, ChunkCount(size_bytes, pieces.chunk_bytes));
  return pieces;
}

HostValues::HostValues(const WireJob& job, const Values& values, int senders)
    : wire_(job.wire),
      data_(values.data),
      senders_(static_cast<uint64_t>(senders)),
      pieces_(PiecesOf(values.count, values.type, job.chunk_bytes, job.chunk_depth)),
      scratch_(job.scratch.AtLeast(senders_ * pieces_.chunk_depth * pieces_.chunk_bytes)),
      part_(values.data) {}

Status HostValues::FinishStore(int from, const ValueRange& chunk, int forward_to) {
  LMDBIO_TRY_VOID(wire_.AwaitReceive(from));
  return forward_to != kNobody ? StartSend(forward_to, chunk) : Status();
}

Status HostValues::FinishReduce(int from, uint64_t turn, const ValueRange& chunk,
                                const Reduction& reduction, int forward_to) {
  LMDBIO_TRY_VOID(wire_.AwaitReceive(from));
  Reduce(pieces_.type, reduction, BytesOf(chunk).data(), SlotOf(from, turn),
         chunk.size_bytes / ElementBytes(pieces_.type));
  return forward_to != kNobody ? StartSend(forward_to, chunk) : Status();
}

// Takes the sources in the order of the ranks, so the bits do not depend on arrival.
Status HostValues::FinishReduceOfAll(uint64_t turn, const ValueRange& chunk,
                                     const Reduction& reduction) {
  sources_.clear();
  for (int from = 0; from < size(); ++from) {
    if (from != rank()) LMDBIO_TRY_VOID(wire_.AwaitReceive(from));
    sources_.push_back(from == rank() ? data_ + chunk.begin : SlotOf(from, turn));
  }
  ReduceAll(pieces_.type, reduction, part_ + (chunk.begin - part_begin_), sources_,
            chunk.size_bytes / ElementBytes(pieces_.type));
  return {};
}

}  // namespace lmdbio::sync
