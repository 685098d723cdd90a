// lmdbio/sync/over_memory/chunk_pipeline.h - calls whose bytes go through the buffers of a host's
// table, chunk after chunk, so that ranks write one chunk while they read another.
//
// Only for the .cc files of this folder.
#ifndef LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_
#define LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "lmdbio/sync/over_memory/host_segment.h"

namespace lmdbio::sync {

// Of numbers, in order: others give other ones, as good as always.
class CallDigest {
 public:
  explicit CallDigest(std::initializer_list<uint64_t> numbers) {
    for (const uint64_t number : numbers) Add(number);
  }
  void Add(uint64_t number) {
    uint64_t z = state_ + 0x9E3779B97F4A7C15U + number;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    state_ = z ^ (z >> 31);
  }
  void Add(std::span<const uint64_t> numbers) {
    Add(numbers.size());
    for (const uint64_t number : numbers) Add(number);
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// The calls, for CallDigest.
enum CallKind : uint64_t {
  kAllReduceCall = 1,
  kReduceScatterCall,
  kAllGatherCall,
  kBroadcastCall,
  kAllToAllCall,
  kBarrierCall,
};

// What a call does with each chunk: the first rank writes what others need into its buffer; when
// all have, each combines its part; when all have, each takes the parts of all.
//   write, combine, take  void(uint64_t chunk)
// kDepth  2: there is no take; 3: there is
template <uint32_t kDepth, typename Write, typename Combine, typename Take>
struct ChunkPipeline {
  uint64_t count = 0;
  Write write;
  Combine combine;
  Take take;

  static constexpr uint32_t kLag = HostSegment::kLag;
  uint64_t IterationCount() const { return count + uint64_t{kDepth - 1} * kLag; }

  // One iteration: the oldest first, whom others may be waiting for.
  void Do(uint64_t iteration) const {
    const auto is_chunk = [&](uint64_t lag) { return iteration >= lag && iteration - lag < count; };
    if (is_chunk(kLag)) combine(iteration - kLag);
    if constexpr (kDepth == 3) {
      if (is_chunk(2 * kLag)) take(iteration - 2 * kLag);
    }
    if (is_chunk(0)) write(iteration);
  }
};

template <uint32_t kDepth, typename Write, typename Combine, typename Take>
ChunkPipeline<kDepth, Write, Combine, Take> MakeChunks(uint64_t count, Write write, Combine combine,
                                                       Take take) {
  return {count, write, combine, take};
}

// Runs the iterations from `first_iteration` on. Iteration i is step `first_step` + i. The last one
// is not published: who comes to the next call has done it.
// Errors: as HostSegment::Await
template <typename AnyChunks>
Status RunChunks(HostSegment& table, const AnyChunks& chunks, uint64_t first_iteration,
                 uint32_t first_step) {
  const uint64_t end = chunks.IterationCount();
  for (uint64_t i = first_iteration; i < end; ++i) {
    if (i >= HostSegment::kLag) {
      LMDBIO_TRY_VOID(table.Await(static_cast<uint32_t>(first_step + i - HostSegment::kLag)));
    }
    chunks.Do(i);
    if (i + 1 < end) table.Publish(static_cast<uint32_t>(first_step + i));
    if (i % 64 == 63) LMDBIO_TRY_VOID(table.KeepAlive());
  }
  table.Finish(chunks.count);
  return {};
}

// The whole call: the first chunk is on the table when the ranks find out whether they mean the
// same, so that this takes no round of its own.
// Errors: as HostSegment::Await
template <typename AnyChunks>
Result<CallOutcome> RunCall(HostSegment& table, const CallTag& tag, const CallHeader& header,
                            const AnyChunks& chunks) {
  if (!tag.is_declined) chunks.Do(0);
  table.Arrive(tag, header);
  LMDBIO_TRY_VOID(table.Await(0));
  if (table.Outcome() == CallOutcome::kDeclined) return CallOutcome::kDeclined;
  LMDBIO_TRY_VOID(RunChunks(table, chunks, 1, 0));
  return CallOutcome::kDone;
}

// The part of `rank`, when `count` things are shared by `rank_count` ranks in multiples of `grain`.
struct IndexRange {
  uint64_t first = 0;
  uint64_t end = 0;
  uint64_t count() const { return end - first; }
};
inline IndexRange ShareOf(uint64_t count, uint64_t grain, int rank, int rank_count) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  const uint64_t each = ((count + ranks - 1) / ranks + grain - 1) / grain * grain;
  const auto at = [&](uint64_t index) { return index * each < count ? index * each : count; };
  return {at(static_cast<uint64_t>(rank)), at(static_cast<uint64_t>(rank) + 1)};
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_
